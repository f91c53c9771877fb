"""Damaged files of every kind: a result or one line of LoadError, in little time and memory."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fuzz.damaged_models import whole
from tests.fuzz.damaged_run import PLANTED, Limits, Outcome, outcomes, read

ALL = 10_000
SHARE = ALL // 20  # the part that every run of the suite takes, another one each day


def check(found: list[Outcome], limits: Limits) -> None:
    faults = [(o.number, o.damage, fault) for o in found if (fault := o.fault(limits))]
    assert not faults, f"{len(faults)} of {len(found)}; the first: {faults[:5]}"


def check_variety(found: list[Outcome]) -> None:
    """Damage that is all of one sort, or that breaks nothing, would show nothing."""
    results = Counter(outcome.result for outcome in found)
    assert results["refused"] > 0.5 * len(found)
    assert results["loaded"] > 0.05 * len(found)
    texts = Counter(re.sub(r"'.*?'|[\[({].*|[\d.]+", "_", outcome.text) for outcome in found)
    assert len(texts) > 150
    assert max(count for text, count in texts.items() if text) < 0.2 * len(found)


def test_undamaged_files_load(tmp_path: Path) -> None:
    for file in whole(tmp_path):
        read(file)


def test_a_share_of_all() -> None:
    first = datetime.date.today().toordinal() % (ALL // SHARE) * SHARE
    found = list(outcomes(first, first + SHARE, Limits()))
    assert len(found) == SHARE
    check(found, Limits())
    check_variety(found)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_all() -> None:
    found = list(outcomes(0, ALL, Limits()))
    assert len(found) == ALL
    check(found, Limits())


@pytest.mark.long
def test_the_check_can_fail() -> None:
    """Reading that takes too long, takes too much, raises something else, hangs, or dies."""
    short = Limits(seconds=0.2, megabytes=60, hang_seconds=4.0)
    found = list(outcomes(0, len(PLANTED), short, planted=True))
    expected = (
        r"took 0\.\d+ s",
        r"took \d+ MB",
        "KeyError: 'planted'",
        "a message of 15 characters",
        "hung: no answer",
        "died: status -7",
    )
    for outcome, text in zip(found, expected, strict=True):
        limits = short if "took 0" in text else replace(short, seconds=10.0)
        with pytest.raises(AssertionError, match="1 of 1; the first"):
            check([outcome], limits)
        assert re.match(text, outcome.fault(limits) or ""), outcome

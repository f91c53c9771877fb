"""No default kernel touches more memory than it needs, unless a list says why (accesses.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from luminal.base import dtypes
from tests.backends.c_family import accesses
from tests.backends.c_family.accesses import LARGE, TABLE, findings, merged, unknown, unneeded
from tests.backends.c_family.small_models import MODELS


def check(found: dict[accesses.Key, accesses.Found], programs: list[str], update: bool) -> None:
    """Nothing is found that is not known, and nothing known of whole programs is gone."""
    if update:
        accesses.write(found, programs)
    wrong = unknown(found)
    assert not wrong, "mend the schedule, or say in known_accesses.json why:\n" + "\n".join(wrong)
    gone = unneeded(found, programs)
    assert not gone, "remove from known_accesses.json (--update-golden):\n" + "\n".join(gone)


@pytest.mark.parametrize("name", LARGE)
def test_large_programs(name: str, update_golden: bool) -> None:
    check(accesses.of_large(name), [name], update_golden)


@pytest.mark.long
def test_floats_of_the_op_table() -> None:
    check(merged(accesses.of_op_table(dtypes.float32)), [], False)


@pytest.mark.long
def test_the_op_table(update_golden: bool) -> None:
    found = merged(each for dtype in dtypes.ALL for each in accesses.of_op_table(dtype))
    check(found, TABLE, update_golden)


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
def test_kernels_of_models(model: str, tmp_path: Path, update_golden: bool) -> None:
    found = merged(findings(model, graph) for graph in MODELS[model](tmp_path))
    check(found, [model], update_golden)


def test_entries_are_of_programs_and_have_reasons() -> None:
    document = accesses.known()
    programs = {*LARGE, *TABLE, *MODELS}
    for row in document["entries"]:
        assert row["program"] in programs
        assert row["finding"] in ("sectors", "conflicts", "scratch")
    assert {row["reason"] for row in document["entries"]} == document["reasons"].keys()
    assert len(accesses.entries()) == len(document["entries"])


def test_what_is_worse_or_gone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    key = ("softmax", "Max.Mul.Add.Exp.Sum.Recip", "sectors")
    row = dict(zip(("program", "kernel", "finding"), key, strict=True)) | {"most": 4.0}
    worse = {key: accesses.Found(8.0, "a load")}
    as_known, better = ({key: accesses.Found(n, "a load")} for n in (4.0, 3.0))
    monkeypatch.setattr(accesses, "entries", dict)
    assert unknown(worse) == [" | ".join(key) + ": 8 times the least: a load"]
    monkeypatch.setattr(accesses, "entries", lambda: {key: row})
    assert unknown(worse)
    assert not unknown(as_known)
    assert not unneeded(as_known, ["softmax"])
    assert unneeded(better, ["softmax"])
    assert unneeded({}, ["softmax"])
    assert not unneeded({}, ["gelu"])  # of which nothing was looked at

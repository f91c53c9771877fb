"""Samples of what the ledgers say passes of PyTorch's operator database.

The names are in so many parts: one is short, another one every day, the rest is long.
`python -m tests.torch_backend.opinfo_sweep [--gradients | --dtypes] --list FILE` writes a ledger.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from random import Random
from typing import Any

import pytest
import torch
from torch.testing._internal import common_methods_invocations

from tests.conformance.opinfo_run import database
from tests.torch_backend.opinfo_sweep import (
    LIMITS,
    LISTS,
    Case,
    cases,
    failures,
    passing,
    samples,
    spread,
    unseeded,
)

PARTS, SAMPLES = 256, 2
TODAY = date.today().toordinal()


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(common_methods_invocations, "wrapper_set_seed", unseeded)
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.reset()


def drawn(kind: str, part: int) -> list[Case]:
    """Some samples of every so many names of a ledger, which they are drawn by the number of the
    part.
    """
    names = list(passing(LISTS[kind].read_text()))[part::PARTS]
    chosen = Random(part)
    found = []
    for op in database():
        if op.name in names and (kind != "gradients" or op.supports_autograd):
            every = samples(op, kind)
            if kind != "dtypes":
                every = spread(every, LIMITS[kind])
            every = cases(every, op, kind)
            found += chosen.sample(every, min(SAMPLES, len(every)))
    return found


def parts(day: int) -> list[Any]:
    """Today's is short."""
    short = day % PARTS
    return [pytest.param(k, marks=[] if k == short else pytest.mark.long) for k in range(PARTS)]


@pytest.mark.parametrize("part", parts(TODAY))
@pytest.mark.parametrize("kind", sorted(LISTS))
def test_samples(kind: str, part: int) -> None:
    with ThreadPoolExecutor(1) as pool:  # its stack is short: each SampleInput looks at all of it
        found = pool.submit(drawn, kind, part).result()
    for k in range(0, len(found), 16):
        assert failures(found[k : k + 16], kind) == []


def test_every_day_another_part_is_short() -> None:
    short = [
        [each.values[0] for each in parts(day) if not each.marks] for day in range(TODAY, TODAY + 3)
    ]
    first = short[0][0]
    assert short == [[(first + k) % PARTS] for k in range(3)]


def test_a_wrong_operator_is_named_and_no_other() -> None:
    ops = {op.name: op for op in database() if op.name in ("exp", "sin")}
    right, wrong = (
        cases(samples(ops[name], "values"), ops[name], "values")[0] for name in ("sin", "exp")
    )
    wrong = wrong._replace(
        call=lambda given: given[0].exp() * (1.001 if torch.compiler.is_compiling() else 1)
    )
    (line,) = failures([right, wrong], "values")
    assert "values differ" in line

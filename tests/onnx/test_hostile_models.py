"""Models of a few bytes that ask for much: a result or an error of Luminal, in seconds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import luminal.onnx
from luminal.onnx import OnnxError, budget
from tests.fuzz.damaged_run import Limits, Outcome, outcomes
from tests.onnx.hostile_models import SUITE, row

READER = "tests.onnx.hostile_run"
LIMITS = Limits(seconds=15.0, megabytes=800)
"""Seconds of both cores, which others use too: alone on a machine it is a third of them."""

X = np.ones((1, 2, 4, 4), np.float32)


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        ("functions of names", 2**39, r"\(Identity\): the \d+ nodes of the model make more than"),
        ("functions in a row", 2**24, "lie more than 64 deep within each other; inline them"),
        ("SplitToSequence", 300_000, r"\(SplitToSequence\): the 5 nodes .* a sequence multiplies"),
        ("loop", 2**36, r"the model computes .* elements, of [\d,]+ bytes .* number of trips"),
        ("loop in a loop", 2**24, r"the model computes .* elements, of [\d,]+ bytes"),
        ("loop of other types", 2**36, r"\(Concat\): makes a tensor of .* elements; there may be"),
        ("AveragePool with padding", 2**36, "the model computes .* is an extent, a window"),
        ("ConstantOfShape", 2**33, r"the model makes a value of 3.44e\+10 bytes, of [\d,]+ bytes"),
        ("sparse", 2**33, "takes a table of 8,589,934,592 numbers; at most 33,554,432 are made"),
        ("ConvTranspose in steps", 2**36, "makes a tensor of .* elements; there may be"),
        ("DFT", 2**26, "takes a table of 8,192 x 8,192 numbers"),
    ],
)
def test_the_error_says_what_is_too_much(name: str, number: int, message: str):
    with pytest.raises(OnnxError, match=message):
        luminal.onnx.load(row(name, number))(X)


def test_a_loop_without_an_end(monkeypatch):
    monkeypatch.setattr(budget, "NODES", 500)
    with pytest.raises(OnnxError, match="a function, a loop or a sequence multiplies"):
        luminal.onnx.load(row("loop whose condition is data", 2**36))(X)


def test_few_of_the_same_are_none_too_many():
    for name in ("functions", "SplitToSequence in parts", "loop"):
        luminal.onnx.load(row(name, 32))(X)
    luminal.onnx.load(row("sparse", 4))(X)


def _check(first: int, count: int) -> None:
    found: list[Outcome] = list(outcomes(first, first + count, LIMITS, reader=READER))
    assert len(found) == count
    faults = [(o.number, o.damage, fault) for o in found if (fault := o.fault(LIMITS))]
    assert not faults, f"{len(faults)} of {count}; the first: {faults[:5]}"
    results = Counter(outcome.result for outcome in found)
    assert min(results["loaded"], results["refused"]) > 0.1 * count


def test_a_few():
    _check(0, 8)


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
@pytest.mark.parametrize("start", [0, SUITE])
def test_many(start: int, block: int):
    _check(start + 50 * block, 50)

"""The rows of the measurements' table (the measurements themselves run by `make bench`)."""

from __future__ import annotations

import json

import numpy as np
import pytest

import luminal as lm
from bench.pair import caller, compare
from bench.row import Row, Skipped, duration


def test_ratios_reach_their_target_and_times_stay_below() -> None:
    assert Row("a", 1.0, 0.9, "x", (0.9, 1.1)).passed
    assert not Row("a", 0.8, 0.9, "x", (0.7, 0.9)).passed
    row = duration("a", [0.004, 0.001, 0.002], 2.5, "ms")
    assert row.passed
    assert row.measured == pytest.approx(2.0)
    assert row.spread == pytest.approx((1.0, 4.0))
    assert row.cells() == ("a", "2 ms", "at most 2.5", "pass", "1 .. 4", "")
    assert not duration("a", [3.0], 2.5, "s").passed


def test_rows_become_json() -> None:
    row = json.loads(json.dumps(Row("a", 0.8, 0.9, "x", (0.7, 0.9)).record()))
    assert row["passed"] is False
    assert row["measured"] == 0.8
    assert Skipped("a", "no data").record() == {"name": "a", "reason": "no data"}


def test_two_sides_are_compared() -> None:
    graph = lm.Graph()
    (graph.tensor((8,), name="x") * 2).output("y")
    ours = caller(graph, x=np.ones(8, np.float32))
    row = compare("double", ours, lambda: np.full(8, 2.0), 0.0)
    assert row.passed
    assert row.measured > 0
    with pytest.raises(AssertionError, match="double: differs from the peer"):
        compare("double", ours, lambda: np.full(8, 2.5), 0.0)

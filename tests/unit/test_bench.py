"""The rows of the measurements' table (the measurements themselves run by `make bench`)."""

from __future__ import annotations

import json

import numpy as np
import pytest

import luminal as lm
from bench import check
from bench.__main__ import SUBJECTS
from bench.attention import LENGTHS
from bench.check import judged
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


def test_a_check_takes_the_median_of_blocks_and_fails_below_its_threshold() -> None:
    blocks = [
        [Row("ratio", ratio, 2.0, "x", (0, 9)), Row("share", share, 0.1, "of whole", (0, 9))]
        for ratio, share in ((0.5, 0.6), (0.9, 0.7), (5.0, 0.1))
    ]
    for threshold, passed in ((0.85, True), (0.95, False)):
        (row,) = judged(blocks, {"ratio": threshold})
        assert row.passed == passed
        assert (row.measured, row.target, row.spread) == (0.9, threshold, (0.5, 5.0))
    for threshold, passed in ((0.65, True), (0.55, False)):  # a share is to stay below
        (row,) = judged(blocks, {"share": threshold})
        assert row.passed == passed


def test_a_measurement_that_went_away_passes_nothing() -> None:
    with pytest.raises(KeyError, match="gone: recorded in"):
        judged([[Row("ratio", 1.0, 0.9, "x", (1, 1))]], {"gone": 0.5})


@pytest.mark.parametrize(("ratio", "status"), [(0.9, 0), (0.8, 1)])
def test_the_status_of_a_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ratio: float, status: int
) -> None:
    row = Row("attention 512", ratio, 1.0, "x", (ratio, ratio))
    monkeypatch.setattr(check, "block", lambda subject: [row])
    monkeypatch.setattr(json, "loads", lambda text: {"attention": {"attention 512": 0.85}})
    monkeypatch.setattr("sys.argv", ["check"])
    assert check.main() == status
    said = "bench-check: 1 of 1 missed: attention 512" in capsys.readouterr().out
    assert said == bool(status)


def test_thresholds_are_recorded_for_attention_at_every_length() -> None:
    recorded = json.loads(check.THRESHOLDS.read_text("utf-8"))
    for length in LENGTHS:
        for name in ("", " causal", ": causal"):
            assert 0.5 < recorded["attention"][f"attention {length}{name}"] < 1.5
    assert recorded.keys() <= set(SUBJECTS)

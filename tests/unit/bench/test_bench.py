"""The rows of the measurements' table (the measurements themselves run by `make bench`)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import luminal as lm
from bench import check
from bench.attention import LENGTHS
from bench.block import EFFORT, in_turns
from bench.check import judged
from bench.pair import caller, compare
from bench.row import Row, Skipped, duration
from bench.table import SUBJECTS
from bench.work import BFLOAT16, Work, normal, rows_of


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


@pytest.mark.usefixtures("hasty")
def test_each_turn_begins_with_another_side() -> None:
    order: list[str] = []
    in_turns({name: partial(order.append, name) for name in "abc"})
    assert "".join(order[::4]) == "abcbcacab"  # a call that warms up, three that are timed


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"blocks": 3, "seconds": 0.0, "pause": 0.0}.items():
        monkeypatch.setattr(EFFORT, name, value)


@pytest.mark.usefixtures("hasty")
def test_we_are_compared_with_the_best() -> None:
    graph = lm.Graph()
    (graph.tensor((8,), name="x") * 2).output("y")
    ours = caller(graph, x=np.ones(8, np.float32))

    def peer(seconds: float, value: float = 2.0) -> Callable[[], np.ndarray]:
        def call() -> np.ndarray:
            time.sleep(seconds)
            return np.full(8, value)

        return call

    row = compare("double", ours, {"slow": peer(0.05), "fast": peer(0.01)}, 1.0)
    own = float(row.detail.split(" ms")[0]) / 1e3
    assert row.passed
    assert 0.01 <= row.measured * own < 0.04
    assert re.search(r"ms; slow \d+(\.\d)?, fast 1\d(\.\d)?$", row.detail)
    with pytest.raises(AssertionError, match=r"double: other differs from ours by 0\.5 of 2\.5"):
        compare("double", ours, {"other": peer(0, 2.5)}, 0.0)


@pytest.mark.usefixtures("hasty")
def test_works_have_weights_and_other_spellings() -> None:
    given = {"x": normal(2, 8, dtype=BFLOAT16), "w": normal(8, 8, dtype=BFLOAT16)}
    work = Work(
        "a product",
        0.0,
        given,
        lambda x, w: x @ w,
        prepared={"transposed": lambda x, w: lambda: (w.t() @ x.t()).t()},
        weights=frozenset("w"),
        tolerance=0.02,
        quick=True,
    )
    (row,) = rows_of([work])
    assert isinstance(row, Row)
    assert "PyTorch" in row.detail
    assert "transposed" in row.detail
    wrong = replace(work, torch=lambda x, w: 2 * (x @ w))
    with pytest.raises(AssertionError, match="a product: PyTorch differs"):
        list(rows_of([wrong]))


def test_a_check_takes_the_median_of_blocks_and_fails_below_its_threshold() -> None:
    blocks = [
        [Row("ratio", ratio, 2.0, "x", (0, 9)), Row("share", share, 0.1, "of whole", (0, 9))]
        for ratio, share in ((0.5, 0.6), (0.9, 0.7), (5.0, 0.1))
    ]
    for threshold, passed in ((0.85, True), (0.95, False)):
        (row,) = judged(blocks, {"ratio": threshold})
        assert isinstance(row, Row)
        assert row.passed == passed
        assert (row.measured, row.target, row.spread) == (0.9, threshold, (0.5, 5.0))
    for threshold, passed in ((0.65, True), (0.55, False)):  # a share is to stay below
        (row,) = judged(blocks, {"share": threshold})
        assert isinstance(row, Row)
        assert row.passed == passed


def test_a_measurement_that_went_away_passes_nothing() -> None:
    with pytest.raises(KeyError, match="gone: recorded in"):
        judged([[Row("ratio", 1.0, 0.9, "x", (1, 1))]], {"gone": 0.5})


def test_what_a_peer_is_missing_for_is_told() -> None:
    row, missing = Row("ratio", 1.0, 0.9, "x", (1, 1)), Skipped("layers", "no peer is installed")
    thresholds = {"ratio": 0.5, "layers, a": 0.5, "layers, b": 0.5}
    assert judged([[row, missing]], thresholds) == [replace(row, target=0.5), missing]


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

"""Small batches added up step as a large one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import optim
from luminal.training.accumulate import GradientAccumulator
from luminal.training.amp import GradScaler
from tests.optim.pairs import Array, assert_near

rng = np.random.default_rng(0)
FIRST = rng.normal(0, 1, (5, 4)).astype(np.float32)
DATA = rng.normal(0, 1, (6, 12, 5)).astype(np.float32)


def problem(rows: int) -> tuple[lm.Parameter, lm.Graph, lm.Tensor]:
    """A Parameter and the mean loss of a batch of so many rows."""
    p, cx = lm.Parameter(FIRST, name="w"), lm.Graph()
    x = cx.tensor((rows, 5), name="x")
    loss = ((x @ cx.weight_of(p)).tanh() - 0.5).square().mean().output("loss")
    return p, cx, loss


def whole_batches() -> Array:
    p, cx, loss = problem(12)
    optim.AdamW([p], lr=0.05).step(loss, clip_norm=0.1)
    step = lm.compile(cx, "reference")
    for x in DATA:
        step({"x": x})
    return p.numpy()


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("kind", ["plain", "scaled", "two programs"])
def test_equal_to_the_large_batch(kind: str, backend: str) -> None:
    p, cx, loss = problem(3)
    optimizer = optim.AdamW([p], lr=0.05)
    scaler = GradScaler(growth_interval=2) if kind == "scaled" else None
    accumulator = GradientAccumulator(optimizer, 4, scaler)
    norm = accumulator.step(loss, clip_norm=0.1)
    accumulator.completes(cx).output("complete")
    assert norm is not None
    programs: dict[str, Any] = {"step": lm.compile(cx, backend)}
    if kind == "two programs":
        other = lm.Graph()
        x = other.tensor((3, 5), name="x")
        accumulator.add(((x @ other.weight_of(p)).tanh() - 0.5).square().mean())
        programs["add"] = lm.compile(other, backend)
    before = FIRST
    for x in DATA:
        for k, part in enumerate(np.split(x, 4)):
            is_last = k == 3
            np.testing.assert_array_equal(p.numpy(), before)
            if kind == "two programs" and not is_last:
                programs["add"]({"x": part})
            else:
                assert programs["step"]({"x": part})["complete"] == is_last
        assert (p.numpy() != before).any()
        before = np.array(p.numpy())
    assert_near({"w": p.numpy()}, {"w": whole_batches()})
    if scaler is not None:
        assert scaler.state_dict() == {"scale": 2.0**19, "growth_tracker": 0, "skipped": 0}
    assert optimizer.state_dict()["state"][0]["step"] == 6


def test_a_round_with_what_is_not_finite_is_skipped() -> None:
    p, cx, loss = problem(3)
    scaler = GradScaler(16.0)
    accumulator = GradientAccumulator(optim.SGD([p], lr=1.0), 2, scaler)
    accumulator.step(loss)
    step = lm.compile(cx, "reference")
    good, bad = DATA[0, :3], np.full((3, 5), np.nan, np.float32)
    for part in (bad, good):
        step({"x": part})
        np.testing.assert_array_equal(p.numpy(), FIRST)
    assert (scaler.get_scale(), accumulator.count.numpy()) == (8.0, 0)
    assert np.isfinite(accumulator.sums[p].numpy()).all()
    for part in (good, good):
        step({"x": part})
    assert np.isfinite(p.numpy()).all()
    assert (p.numpy() != FIRST).any()


def test_it_is_saved_in_the_middle_of_a_round() -> None:
    ends = []
    for cut in (False, True):
        p, cx, loss = problem(3)
        accumulator = GradientAccumulator(optim.SGD([p], lr=1.0), 4)
        if not cut:
            accumulator.step(loss)
            step = lm.compile(cx, "reference")
            for part in np.split(DATA[0], 4)[:2]:
                step({"x": part})
            saved = accumulator.state_dict()
        else:
            accumulator.load_state_dict(saved)
            accumulator.step(loss)
            step = lm.compile(cx, "reference")
        for part in np.split(DATA[0], 4)[2:]:
            step({"x": part})
        ends.append(np.array(p.numpy()))
    np.testing.assert_array_equal(ends[0], ends[1])
    assert (ends[0] != FIRST).any()


def test_what_is_refused() -> None:
    p = lm.Parameter(FIRST, name="w")
    accumulator = GradientAccumulator(optim.SGD([p]), 2)
    with pytest.raises(lm.InputError, match="steps=0; it must be an int of at least 1"):
        GradientAccumulator(optim.SGD([p]), 0)
    with pytest.raises(lm.LoadError, match="no parameter 3; there are 1"):
        accumulator.load_state_dict({"count": 1, "sums": {3: FIRST}})
    with pytest.raises(lm.LoadError, match=r"w: the sum has the shape \(4,\)"):
        accumulator.load_state_dict({"count": 1, "sums": {0: FIRST[0]}})
    assert (accumulator.count.numpy(), accumulator.sums) == (0, {})

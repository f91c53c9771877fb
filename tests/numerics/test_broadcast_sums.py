"""Sums and maxima along axes that their operand lacks: by the number of positions."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm


def compiled(
    x: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...], op: str
) -> lm.Executable:
    cx = lm.Graph()
    wide = cx.tensor(x.shape, x.dtype, name="x").expand(*shape)
    getattr(wide, op)(axes).output("y")
    return lm.compile(cx)


def test_a_sum_of_equal_numbers_is_rounded_once() -> None:
    """One by one they are rounded a million times, all in one direction: off by 5e-4."""
    x = np.float32([0.78])
    exe = compiled(x, (2_858_760,), (0,), "sum")
    assert exe({"x": x})["y"] == np.float32(2_858_760 * float(x[0]))
    assert exe.report().flops <= 2


def test_numerics_exact_still_adds() -> None:
    cx = lm.Graph()
    cx.tensor((1,), name="x").expand(1000).sum().output("y")
    assert lm.compile(cx, numerics="exact").report().flops >= 1000


@pytest.mark.parametrize("seed", range(40))
def test_drawn_broadcasts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    shape = tuple(int(extent) for extent in rng.integers(1, 9, rank))
    held = tuple(extent if rng.random() < 0.5 else 1 for extent in shape)
    axes = tuple(sorted(rng.choice(rank, int(rng.integers(1, rank + 1)), replace=False).tolist()))
    op = str(rng.choice(["sum", "mean", "amax", "any"]))
    dtype = np.dtype(rng.choice(["float32", "float64", "float16", "int32", "uint8", "bool"]))
    if op == "mean" and dtype.kind != "f":
        dtype = np.dtype(np.float32)
    x = (rng.standard_normal(held) * 4).astype(np.int64).astype(dtype)
    numpy = {"amax": np.max}.get(op) or getattr(np, op)
    expected = numpy(np.broadcast_to(x, shape), axis=axes)
    found = compiled(x, shape, axes, op)({"x": x})["y"]
    # two ulp of float16, eight of float32: the summands are whole numbers
    np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == np.float16 else 1e-6)

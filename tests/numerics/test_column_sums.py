"""Sums of columns that lie side by side, few or long enough to be cut: against float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from luminal.frontend.tensor import Tensor

SHAPES = (
    (9001, 17), (4096, 64), (3000, 200), (2049, 256), (1100, 257), (37, 600, 33), (5000, 3, 20),
    (9000, 1024), (65, 70_001),
)  # fmt: skip
FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(0),
    "greatest": lambda x: x.amax(0),
    "of squares": lambda x: (x * x).sum(0),
    "variance": lambda x: x.var(0, correction=0),
    "of what is computed": lambda x: ((x - 1).relu() * 2 + x.abs()).sum(0),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_float64(shape: tuple[int, ...]) -> None:
    cx = lm.Graph()
    x = cx.tensor(shape, name="x")
    scale = cx.weight(shape[-1:], name="w")
    for name, form in FORMS.items():
        form(x).output(name)
    (x * scale).sum(tuple(range(len(shape) - 1))).output("scaled")
    rng = np.random.default_rng(shape)
    given, w = (rng.standard_normal(s).astype(np.float32) for s in (shape, shape[-1]))
    found, wide = lm.compile(cx)({"x": given, "w": w}), given.astype(np.float64)
    computed = np.maximum(wide - 1, 0) * 2 + abs(wide)
    wanted = {
        "sum": wide.sum(0),
        "greatest": wide.max(0),
        "of squares": (wide * wide).sum(0),
        "variance": wide.var(0),
        "of what is computed": computed.sum(0),
        "scaled": (wide * w).sum(tuple(range(len(shape) - 1))),
    }
    for name, values in wanted.items():
        bound = np.sqrt(wide.size / values.size) * 2e-6
        np.testing.assert_allclose(found[name], values, rtol=2e-6, atol=10 * bound, err_msg=name)


@pytest.mark.parametrize(("rows", "columns", "chunks"), [(100_000, 64, 64), (2000, 64, 1)])
def test_few_columns_are_cut_where_it_pays(rows: int, columns: int, chunks: int) -> None:
    cx = lm.Graph()
    cx.tensor((rows, columns), name="x").sum(0).output("y")
    assert lm.compile(cx, backend="cpu").report().kernels[0].chunks == chunks


def test_integers_are_exact_however_they_are_cut() -> None:
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (7001, 48)).astype(np.int32)
    cx = lm.Graph()
    given = cx.tensor(x.shape, "int32", "x")
    given.sum(0).output("sum")
    given.amin(0).output("least")
    found = lm.compile(cx)(x=x)
    np.testing.assert_array_equal(found["sum"], x.sum(0))
    np.testing.assert_array_equal(found["least"], x.min(0))

"""Rows sorted by rank and, from some length on, by radix: order and exact bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.expand.sort import RADIX_FROM
from luminal.kernel.tile_ir import SortRow
from tests.fuzz.cpu_run import compiled

LENGTHS = (17, RADIX_FROM - 1, RADIX_FROM)
DTYPES = ("float32", "float64", "int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


def rows(dtype: str, length: int) -> np.ndarray[Any, Any]:
    """Three rows: anything; many equals; nearly one value only."""
    rng = np.random.default_rng(length)
    if dtype in ("float32", "float64"):
        x = rng.normal(size=(3, length)).astype(dtype)
        x[0, ::7], x[0, 1::7] = np.nan, -np.nan
        x[1, ::5], x[1, 1::5] = -0.0, 0.0
        x[2], x[2, ::9], x[2, 4::9] = 1.5, np.inf, -np.inf
        return x
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max, (3, length), dtype, endpoint=True)
    x[1] = x[1] // 50
    x[2] = 7
    return x


def test_rows_of_every_dtype() -> None:
    cx = lm.Graph()
    given = {f"{d} {n}": rows(d, n) for d in (*DTYPES, *UNSIGNED) for n in LENGTHS}
    for name, array in given.items():
        x = cx.tensor(array.shape, array.dtype, name)
        values, order = x.sort()
        values.output(f"{name} values")
        order.output(f"{name} order")
        x.transpose(0, 1).argsort(0, descending=True).output(f"{name} falling")
    found = lm.compile(cx)(given)
    for name, array in given.items():
        order = np.argsort(array, 1, kind="stable")
        np.testing.assert_array_equal(found[f"{name} order"], order, name)
        expected = np.take_along_axis(array, order, 1)
        assert found[f"{name} values"].tobytes() == expected.tobytes(), name
        backwards = array.shape[1] - 1 - np.argsort(array[:, ::-1], 1, kind="stable")[:, ::-1]
        np.testing.assert_array_equal(found[f"{name} falling"], backwards.T, name)


@pytest.mark.parametrize(("most", "name"), [(2**31 - 1, "i32"), (2**31, "i64")])
def test_positions_are_moved_in_half_where_that_holds_them(most: int, name: str) -> None:
    graph = lm.Graph()
    n = graph.dim("n", 1, most)
    values, order = graph.tensor((n,), name="x").sort()
    values.output("v")
    order.output("o")
    (kernel,) = compiled(graph.graph())[1].program.kernels
    (row,) = (each for each in kernel.statements() if isinstance(each, SortRow))
    (moved,) = (each for each in kernel.scratch if each.name == row.work_order)
    assert moved.dtype.short == name
    x = np.random.default_rng(0).integers(0, 50, 3000).astype(np.float32)
    exe = lm.compile(graph)
    out = exe({"x": x})
    np.testing.assert_array_equal(out["o"], np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(out["v"], np.sort(x))

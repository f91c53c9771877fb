"""Rows sorted by rank and, from some length on, by radix: order and exact bits."""

from __future__ import annotations

from typing import Any

import numpy as np

import luminal as lm
from luminal.expand.sort import RADIX_FROM

LENGTHS = (1, 17, RADIX_FROM - 1, RADIX_FROM, 1500)
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

"""Sums of short rows on an OpenCL device: the lanes of a group share rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from tests.backends.opencl.devices import compiled


def reductions(rows: int | None, length: int) -> Callable[[Any], dict[str, Any]]:
    """Sums, greatest values and their places along so many rows, or any number, on the device."""
    cx = lm.Graph()
    x = cx.tensor((cx.dim("rows", 1, 2000) if rows is None else rows, length), name="x")
    x.sum(1).output("sum")
    x.amax(1).output("greatest")
    x.argmax(1).output("place")
    exe = compiled(cx.graph())
    return lambda array: exe({"x": array})


def check(run: Callable[[Any], dict[str, Any]], x: Any) -> None:
    found = run(x)
    with np.errstate(invalid="ignore"):
        wanted = {"sum": x.sum(1), "greatest": x.max(1), "place": x.argmax(1)}
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, name)


def drawn(rows: int, length: int) -> Any:
    """Whole numbers below 0: sums are exact in any order, and a 0 from beside them is seen."""
    return -np.random.default_rng(length).integers(1, 999, (rows, length)).astype(np.float32)


@pytest.mark.parametrize("length", [1, 3, 7, 16, 33])
def test_any_number_of_short_rows(length: int) -> None:
    run = reductions(None, length)
    for rows in (1, 37, 1000):
        check(run, drawn(rows, length))


@pytest.mark.parametrize(("rows", "length"), [(1, 5), (70, 9), (1000, 64)])
def test_so_many_short_rows(rows: int, length: int) -> None:
    check(reductions(rows, length), drawn(rows, length))


def test_short_rows_that_are_not_finite() -> None:
    x = np.zeros((70, 17), np.float32)
    x[3, -1], x[40, 0], x[41, 1], x[69, -1] = np.inf, np.nan, -np.inf, np.nan
    x[50, 0], x[50, 1] = np.inf, -np.inf  # a sum that is NaN, a greatest value that is not
    check(reductions(70, 17), x)

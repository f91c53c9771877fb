"""Scans in vectors and in blocks, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.compiler.compile import lower_to_program
from luminal.kernel.tile_text import to_text
from tests.close import close
from tests.long_share import long_rows
from tests.machines import vectors

Array = np.ndarray[Any, Any]
LONG = 70_001  # more than `Shares.work`, and no multiple of any block
PRODUCTS = 2e-4  # every factor rounds by a part of the result, in whatever order
RNG = np.random.default_rng(7)


def compiled(function: Callable[[lm.Tensor], lm.Tensor], like: Array, **options: Any) -> Any:
    cx = lm.Graph()
    function(cx.tensor(like.shape, like.dtype, name="x")).output("y")
    return lm.compile(cx, **options)


def found(function: Callable[[lm.Tensor], lm.Tensor], x: Array, **options: Any) -> Array:
    return np.asarray(compiled(function, x, **options)({"x": x})["y"])


def is_close(y: Array, expected: Array, tolerance: float = 1e-5) -> None:
    """Within a part of the largest result."""
    assert y.shape == expected.shape
    scale = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(y, expected, 0, tolerance * scale)


SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((1,), 0), ((15,), 0), ((16,), 0), ((33,), 0), ((1000,), 0), ((LONG,), 0),
    ((3, 30_011), 1), ((20, 4099), 1), ((1, LONG), 1), ((LONG, 1), 0), ((30_011, 3), 0),
    ((2, 20_011, 3), 1), ((3, 2, 12_007), 2), ((1 << 17,), 0), ((4001, 3), 1), ((700, 8), 1),
    ((700, 9), 1),
]  # fmt: skip
"""And the axes that are scanned."""


@pytest.mark.parametrize(("shape", "axis"), long_rows(SHAPES, [*SHAPES[::3], ((30_011, 3), 0)]))
def test_sums_products_and_extremes_of_any_shape(shape: tuple[int, ...], axis: int) -> None:
    x = RNG.standard_normal(shape, np.float32)
    wide = x.astype(np.float64)
    is_close(found(lambda t: t.cumsum(axis), x), wide.cumsum(axis))
    near = (1 + x * 1e-3).astype(np.float32)
    is_close(
        found(lambda t: t.cumprod(axis), near), near.astype(np.float64).cumprod(axis), PRODUCTS
    )
    values = np.maximum.accumulate(x, axis)
    np.testing.assert_array_equal(found(lambda t: t.cummax(axis)[0], x), values)
    at = np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    last = np.maximum.accumulate(np.where(x == values, at, 0), axis)
    np.testing.assert_array_equal(found(lambda t: t.cummax(axis)[1], x), last)
    whole = (x * 9).astype(np.int32)
    np.testing.assert_array_equal(
        found(lambda t: t.cumsum(axis), whole), whole.cumsum(axis, dtype=np.int64)
    )
    is_close(found(lambda t: t.cumsum(axis), wide), wide.cumsum(axis), 1e-12)


def test_values_that_are_not_finite_stay_where_they_begin() -> None:
    x = RNG.standard_normal(LONG).astype(np.float32)
    x[10], x[30_000], x[60_000] = -0.0, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        close(found(lambda t: t.cumsum(0), x), x.astype(np.float64).cumsum(), ulp=16)
    np.testing.assert_array_equal(found(lambda t: t.cummax(0)[0], x), np.maximum.accumulate(x))
    x[60_000] = -np.inf
    with np.errstate(invalid="ignore"):
        expected = x.astype(np.float64).cumsum()
    close(found(lambda t: t.cumsum(0), x), expected, ulp=16)
    low = np.full(LONG, -np.inf, np.float32)
    np.testing.assert_array_equal(found(lambda t: t.cummax(0)[0], low), low)


def test_narrow_floats_are_scanned_in_float32() -> None:
    x = RNG.standard_normal(LONG).astype(ml_dtypes.bfloat16)
    wide = x.astype(np.float64).cumsum()
    y = found(lambda t: t.cumsum(0), x).astype(np.float64)
    np.testing.assert_allclose(y, wide, 2**-8, 1e-2)  # bfloat16's last digit; the sums pass 0


def test_dims_are_cut_too() -> None:
    cx = lm.Graph()
    n = cx.dim("n", 0, 1 << 20)
    x = cx.tensor((n,), name="x")
    x.cumsum(0).output("sums")
    x.cummax(0)[0].output("greatest")
    exe = lm.compile(cx)
    for size in (0, 1, 17, 16_384, 16_385, LONG, 1 << 20):
        given = RNG.standard_normal(size, np.float32)
        y = exe({"x": given})
        is_close(y["sums"], given.astype(np.float64).cumsum())
        np.testing.assert_array_equal(y["greatest"], np.maximum.accumulate(given))


def test_exact_numerics_add_in_the_order_of_the_row() -> None:
    x = RNG.standard_normal(LONG, np.float32)
    exact = found(lambda t: t.cumsum(0), x, numerics="exact")
    np.testing.assert_array_equal(exact, np.add.accumulate(x))
    # The greatest are the same in any order: in blocks, whatever the numerics.
    exe = compiled(lambda t: t.cummax(0)[0], x, numerics="exact")
    assert max(int(kernel.chunks) for kernel in exe.report().kernels) > 8


def test_long_rows_are_cut_and_many_rows_are_not() -> None:
    long = compiled(lambda t: t.cumsum(0), np.zeros(LONG, np.float32))
    assert [kernel.label for kernel in long.report().kernels] == ["Sum", "Select.Scan", "Scan"]
    many = compiled(lambda t: t.cumsum(1), np.zeros((64, 4096), np.float32))
    assert [kernel.label for kernel in many.report().kernels] == ["Scan"]


def test_what_is_computed_before_is_computed_in_the_blocks() -> None:
    x = RNG.standard_normal(LONG, np.float32)
    y = found(lambda t: (t.exp() - 1.5).cumsum(0) * 2, x)
    is_close(y, 2 * (np.exp(x.astype(np.float64)) - 1.5).cumsum())
    turned = found(lambda t: t.flip(0).cumsum(0).flip(0), x)
    is_close(turned, x.astype(np.float64)[::-1].cumsum()[::-1])
    grid = RNG.standard_normal((300, 307), np.float32)
    is_close(
        found(lambda t: t.transpose(0, 1).reshape(300 * 307).cumsum(0), grid),
        grid.astype(np.float64).T.reshape(-1).cumsum(),
        1e-5,
    )


@pytest.mark.parametrize(("length", "has_vectors"), [(2, False), (4, False), (5, True), (40, True)])
def test_rows_that_fill_a_quarter_of_a_vector_are_scanned_in_vectors(
    length: int, has_vectors: bool
) -> None:
    cx = lm.Graph()
    cx.tensor((300, length), name="x").cumsum(1).output("y")
    (kernel,) = lower_to_program(cx.graph(), vectors(512, 32)).kernels
    assert ("prefix Add" in to_text(kernel)) is has_vectors

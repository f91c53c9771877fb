"""General powers `x ** y`: through exp2 and log2 for floats, by squaring for integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from luminal.dtypes import float64, int32, int64
from luminal.frontend.handle import apply

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def power(x: Tensor, y: Tensor) -> Tensor:
    """`x ** y` for two tensors of one shape and compute dtype."""
    return _float_power(x, y) if x.dtype.is_float else _integer_power(x, y)


def _select(condition: Tensor, a: Tensor | float, b: Tensor) -> Tensor:
    chosen = b.graph.full(b.extents, a, b.dtype) if isinstance(a, int | float) else a
    return apply("Select", condition, chosen, b)


def _float_power(x: Tensor, y: Tensor) -> Tensor:
    """As C's pow: |x| ** y with the sign of x for odd y, NaN for other y of a negative x."""
    size = abs(x)
    result = _select(size == 1, 1, (y * size.log2()).exp2())
    integer = int64 if x.dtype is float64 else int32
    negative = x.bitcast(integer) < 0  # also -0.0
    whole = y.floor() == y
    odd = whole & (y % 2 == 1)
    result = _select(negative & odd, -result, result)
    below = (x < 0) & (x != -math.inf)
    result = _select(below & ~whole, math.nan, result)
    return _select((y == 0) | (x == 1), 1, result)


def _integer_power(x: Tensor, y: Tensor) -> Tensor:
    """By squaring, a step per bit of y, wrapping; negative powers are 0 but of 1 and -1."""
    result = x.graph.full(x.extents, 1, x.dtype)
    square = x
    for bit in range(y.dtype.bits):
        wanted = ((y >> bit) & 1) == 1
        result = _select(wanted, result * square, result)
        square = square * square
    if y.dtype.kind == "uint":
        return result
    unit = x * x == 1
    return _select((y < 0) & ~unit, 0, result)

"""General powers `x ** y`: through exp2 and log2 for floats, by squaring for integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from luminal.base.dtypes import float32, float64
from luminal.frontend.handle import apply
from luminal.frontend.pointwise.derivatives import differentiated

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

# log2(m) = s * p(s**2) with s = (m - 1) / (m + 1), for m in [sqrt(1/2), sqrt(2)]
_LOG2 = (
    2.8853900817778477, 0.9617966941178792, 0.5770779409072766, 0.41220941283817014,
    0.31989861725615537, 0.2830078944924641,
)  # fmt: skip


def power(x: Tensor, y: Tensor) -> Tensor:
    """`x ** y` for two tensors of one shape and compute dtype."""
    return _float_power(x, y) if x.dtype.is_float else _integer_power(x, y)


def _select(condition: Tensor, a: Tensor | float, b: Tensor) -> Tensor:
    chosen = b.graph.full(b.extents, a, b.dtype) if isinstance(a, int | float) else a
    return apply("Select", condition, chosen, b)


def _power_derivative(g: Tensor, z: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """y * x ** (y - 1), 0 where y is 0; z * log(x), 0 where x ** y is constant in y, as PyTorch."""
    exponent = _select(y == 0, 1, y)
    slope = g * exponent * power(x, exponent - 1)
    is_flat = (x == 0) & ~(y < 0)
    growth = g * z * _select(is_flat, 1, x).log()
    return _select(y == 0, 0, slope), _select(is_flat, 0, growth)


@differentiated(_power_derivative)
def _float_power(x: Tensor, y: Tensor) -> Tensor:
    """As C's pow: |x| ** y with the sign of x for odd y, NaN for other y of a negative x.

    Within 2 ulp in f32, where the exponent y * log2(x) is formed in f64. In f64 within 1e-13 of the
    result, as the rounding of the exponent counts up to 1024 times.
    """
    size = abs(x)
    magnitude = (y * size.log2()).exp2() if x.dtype is float64 else _narrow_power(size, y)
    result = _select(size == 1, 1, magnitude)
    result = _select(y == 1, size, result)  # rounding may carry the largest numbers over the end
    negative = (x < 0) | (x.reciprocal() < 0)  # also -0.0
    whole = y.floor() == y
    odd = whole & (y % 2 == 1)
    result = _select(negative & odd, -result, result)
    below = (x < 0) & (x != -math.inf)
    result = _select(below & ~whole, math.nan, result)
    return _select((y == 0) | (x == 1), 1, result)


def _narrow_power(x: Tensor, y: Tensor) -> Tensor:
    """x ** y of f32 for x >= 0: 2 ** whole * 2 ** fraction of the exponent."""
    exponent = y.cast(float64) * _wide_log2(x)
    exponent = exponent.maximum(-300).minimum(300)  # 0 below, inf above; NaN passes
    whole = (exponent + 0.5).floor()
    return _scaled((exponent - whole).cast(float32).exp2(), whole.cast(float32))


def _wide_log2(x: Tensor) -> Tensor:
    """log2 of an f32 >= 0 in f64, relative error 2**-44: whole + log2(m), m near 1."""
    whole = (x.log2() + 0.5).floor()
    m = _scaled(x, -whole).cast(float64)
    s = (m - 1) / (m + 1)
    square = s * s
    series = square * _LOG2[-1] + _LOG2[-2]
    for coefficient in reversed(_LOG2[:-2]):
        series = series * square + coefficient
    ends = x.log2().cast(float64)  # -inf, inf and NaN
    return _select((x > 0) & (x < math.inf), whole.cast(float64) + s * series, ends)


def _scaled(x: Tensor, whole: Tensor) -> Tensor:
    """x * 2**whole for whole in -300 .. 300, rounded once: by exact factors within f32's range."""
    third = (whole * (1 / 3)).floor()
    return x * third.exp2() * third.exp2() * (whole - 2 * third).exp2()


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
    unit = (x == 1) | (x == -1)
    return _select((y < 0) & ~unit, 0, result)

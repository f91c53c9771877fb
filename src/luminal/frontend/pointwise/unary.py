"""One tensor in, one out, element by element: the primitives, roots, and polynomials."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType, float64, int32, int64
from luminal.base.errors import DTypeError
from luminal.frontend.handle import Operand, apply, in_float
from luminal.frontend.pointwise.binary import unified, where
from luminal.frontend.pointwise.derivatives import differentiated

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def cast(x: Tensor, dtype: Any) -> Tensor:
    """`x` converted: floats to ints truncate and saturate, narrowing rounds to nearest even."""
    return x.graph.wrap(x.graph.builder.cast(x.value, dtypes.dtype_of(dtype)))


def bitcast(x: Tensor, dtype: Any) -> Tensor:
    """The same bits read as another dtype of the same width."""
    return x.graph.wrap(x.graph.builder.bitcast(x.value, dtypes.dtype_of(dtype)))


def stop_gradient(x: Tensor) -> Tensor:
    """`x`, taken as a constant by differentiation."""
    return apply("Detach", x)


@in_float
def exp(x: Tensor) -> Tensor:
    """e ** x."""
    return apply("Exp", x)


@in_float
def exp2(x: Tensor) -> Tensor:
    """2 ** x."""
    return apply("Exp2", x)


@in_float
def log(x: Tensor) -> Tensor:
    """The natural logarithm; NaN below 0."""
    return apply("Log", x)


@in_float
def log2(x: Tensor) -> Tensor:
    """The logarithm to base 2; NaN below 0."""
    return apply("Log2", x)


@in_float
def sqrt(x: Tensor) -> Tensor:
    """The square root; NaN below 0."""
    return apply("Sqrt", x)


@in_float
def reciprocal(x: Tensor) -> Tensor:
    """1 / x, correctly rounded."""
    return apply("Recip", x)


@in_float
def rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x)."""
    return reciprocal(sqrt(x))


@in_float
def sin(x: Tensor) -> Tensor:
    """The sine of x in radians."""
    return apply("Sin", x)


@in_float
def cos(x: Tensor) -> Tensor:
    """The cosine of x in radians."""
    return apply("Cos", x)


def neg(x: Tensor) -> Tensor:
    """-x; -0.0 for 0.0. Unsigned integers wrap."""
    if x.dtype is dtypes.bool_:
        raise DTypeError("neg: bool has no sign; use ~x for not")
    if x.dtype.is_signed:
        return x * -1
    return x * x.graph.constant(np.iinfo(x.dtype.numpy).max, x.dtype)  # -1 modulo 2**bits


def logical_not(x: Tensor) -> Tensor:
    """True where x is 0."""
    return invert(x.cast(dtypes.bool_))


def invert(x: Tensor) -> Tensor:
    """Not of bools, the complement of every bit of integers."""
    if x.dtype.is_float:
        raise DTypeError(f"~: {x.dtype.name} has no bitwise complement; cast to an integer first")
    ones = np.ones((), bool) if x.dtype is dtypes.bool_ else np.asarray(-1).astype(x.dtype.numpy)
    return x ^ x.graph.constant(ones)


def abs(x: Tensor) -> Tensor:
    """|x|; +0.0 for -0.0. The lowest integer, which has no negative, is unchanged."""
    if x.dtype.kind in ("bool", "uint"):
        return x
    return x.maximum(-x)


@differentiated(lambda g, y, x: None)
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1 in x's dtype; 0 of both zeros; NaN stays."""
    if x.dtype.kind in ("bool", "uint"):
        return x.cast(dtypes.bool_).cast(x.dtype)
    return where(x > 0, 1, where(x < 0, -1, where(x == 0, 0, x)))


def square(x: Tensor) -> Tensor:
    """x * x; bools give int64, as PyTorch's power 2."""
    return x * x if x.dtype is not dtypes.bool_ else x.cast(dtypes.int64)


def isnan(x: Tensor) -> Tensor:
    """True where x is NaN."""
    return x != x


def isinf(x: Tensor) -> Tensor:
    """True where x is infinite: |x| == inf."""
    return abs(x) == math.inf if x.dtype.is_float else _nowhere(x)


def isposinf(x: Tensor) -> Tensor:
    """True where x is +inf."""
    return x == math.inf if x.dtype.is_float else _nowhere(x)


def isneginf(x: Tensor) -> Tensor:
    """True where x is -inf."""
    return x == -math.inf if x.dtype.is_float else _nowhere(x)


def isfinite(x: Tensor) -> Tensor:
    """True where x is neither infinite nor NaN: |x| < inf."""
    return abs(x) < math.inf if x.dtype.is_float else ~_nowhere(x)


def _nowhere(x: Tensor) -> Tensor:
    return x.graph.full(x.extents, False)


def signbit(x: Tensor) -> Tensor:
    """True where the sign bit is set, also of -0.0 and NaN."""
    return bits_of(x.cast(x.dtype.compute)) < 0 if x.dtype.is_float else x < 0


def nan_to_num(
    x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """NaN replaced by `nan`, infinities by `posinf` and `neginf` (None: the largest finite)."""
    if not x.dtype.is_float:
        return x
    largest = x.dtype.largest
    x = where(x == math.inf, largest if posinf is None else posinf, x)
    x = where(x == -math.inf, -largest if neginf is None else neginf, x)
    return where(x == x, x, nan)


# --- roots ----------------------------------------------------------------------------------------


@in_float
@differentiated(lambda g, y, x: g / (3 * y * y))
def cbrt(x: Tensor) -> Tensor:
    """The cube root with x's sign, within 1 ulp: exp2(log2(|x|) / 3), then a step of Newton's."""
    a = abs(x)
    root = (a.log2() * (1 / 3)).exp2()
    root = root - (root - a / (root * root)) * (1 / 3)
    return odd(where((a == 0) | (a == math.inf), a, root), x)


def hypot(a: Operand, b: Operand) -> Tensor:
    """sqrt(a**2 + b**2) without overflow, within 3 ulp: max * sqrt(1 + (min / max)**2).

    Infinite where either is, even with NaN; integers give float32.
    """
    (x, y), result = unified("hypot", (a, b), floating=True)
    return _length(x, y).cast(result)


def _length_derivative(g: Tensor, z: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """0 at the origin, as of a norm."""
    length = where(z == 0, 1, z)
    return g * (x / length), g * (y / length)


@differentiated(_length_derivative)
def _length(x: Tensor, y: Tensor) -> Tensor:
    x, y = abs(x), abs(y)
    large, small = x.maximum(y), x.minimum(y)
    ratio = where(large == 0, 0, small / large)
    length = large * (1 + ratio * ratio).sqrt()
    infinite = (x == math.inf) | (y == math.inf)
    return where(infinite, math.inf, length)


# --- polynomial -----------------------------------------------------------------------------------
#
# Coefficients in this folder are weighted least-squares fits at Chebyshev points, made with
# 50-digit arithmetic; those of f32 were rounded one after the other, the rest fitted again each
# time.


Coefficients: TypeAlias = Mapping[DType, Sequence[float]]
"""For float32 and float64 the coefficients of a polynomial, the constant one first."""


def polynomial(x: Tensor, coefficients: Coefficients) -> Tensor:
    """`c[0] + c[1] * x + c[2] * x**2 + ...` by Horner's rule; x is f32 or f64."""
    row = coefficients[x.dtype]
    result = x * row[-1] + row[-2]
    for coefficient in reversed(row[:-2]):
        result = result * x + coefficient
    return result


def bits_of(x: Tensor) -> Tensor:
    """The bits of an f32 or f64 as a signed integer."""
    return x.bitcast(int64 if x.dtype is float64 else int32)


def odd(magnitude: Tensor, x: Tensor) -> Tensor:
    """`magnitude`, negated where x is negative; x itself at 0 and -0.

    By comparison, not by the sign bit: the reference knows no error bounds for bits.
    """
    return where(x < 0, -magnitude, where((x == 0) & (magnitude == 0), x, magnitude))


def is_negative(x: Tensor) -> Tensor:
    """True below 0 and at -0.0, by comparison: see `odd`."""
    return (x < 0) | (1 / x < 0)


def with_sign(magnitude: Tensor, x: Tensor) -> Tensor:
    """`magnitude` with the sign bit of `x`, both of one compute dtype and shape."""
    lowest = -(1 << (magnitude.dtype.bits - 1))
    body = bits_of(magnitude) & ~lowest
    return (body | (bits_of(x) & lowest)).bitcast(magnitude.dtype)

"""One tensor in, one out, element by element: primitives, rounding, roots, polynomials, bits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType, float64, int32, int64
from luminal.base.errors import DTypeError
from luminal.frontend.handle import Operand, apply, in_float
from luminal.frontend.pointwise.binary import unified, where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.hlir.attributes import ShardAttrs

if TYPE_CHECKING:
    from luminal.base.dtypes import DType
    from luminal.frontend.tensor import Tensor


def cast(x: Tensor, dtype: Any) -> Tensor:
    """`x` converted: floats to ints truncate and saturate, narrowing rounds to nearest even."""
    if dtype is x.dtype:
        return x
    return x.graph.wrap(x.graph.builder.cast(x.value, dtypes.dtype_of(dtype)))


def bitcast(x: Tensor, dtype: Any) -> Tensor:
    """The bits of `x` read as another dtype of the same width."""
    return x.graph.wrap(x.graph.builder.bitcast(x.value, dtypes.dtype_of(dtype)))


def stop_gradient(x: Tensor) -> Tensor:
    """`x`, taken as a constant by differentiation."""
    return apply("Detach", x)


def shard(x: Tensor, *spec: str | tuple[str, ...] | None) -> Tensor:
    """`x`, which from here on lies so on the ranks of a mesh: for each dimension the mesh axis (or
    axes) that it is cut over, or None; further dimensions are whole.

    An input that is only read so is given to a program as a rank's own part. Where a graph is
    compiled without `mesh=`, it is `x`. Raises ShapeError for more entries than dimensions.
    """
    from luminal.distribute.mesh import spec_of  # late: few graphs are for several ranks

    entries = spec_of(spec, len(x.shape), f"shard of {x.value.type}")
    node = x.graph.builder.make("Shard", [x.value], ShardAttrs(entries))
    return x.graph.wrap(node.value)


@in_float
def exp(x: Tensor) -> Tensor:
    """The exponential function: e ** x."""
    return apply("Exp", x)


@in_float
def exp2(x: Tensor) -> Tensor:
    """The power of 2: 2 ** x."""
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
    """The reciprocal of the square root: 1 / sqrt(x)."""
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
    # A product keeps the sign of zero, as 0 - x would not: -(0.0) is -0.0.
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
    # max(-0.0, 0.0) is +0.0 by the rule of Maximum, so that no sign bit has to be cleared.
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


# --- rounding to whole numbers --------------------------------------------------------------------


def floor(x: Tensor) -> Tensor:
    """The greatest integer not above x, in x's dtype; integers are unchanged."""
    if not x.dtype.is_float:
        return x
    return apply("Floor", x.cast(x.dtype.compute)).cast(x.dtype)


def ceil(x: Tensor) -> Tensor:
    """The least integer not below x, in x's dtype: -floor(-x)."""
    return -floor(-x) if x.dtype.is_float else x


@differentiated(lambda g, y, x: None)
def trunc(x: Tensor) -> Tensor:
    """x without its fraction, toward 0: floor(|x|) with x's sign."""
    if not x.dtype.is_float:
        return x
    wide = x.cast(x.dtype.compute)
    return odd(apply("Floor", abs(wide)), wide).cast(x.dtype)


def frac(x: Tensor) -> Tensor:
    """x - trunc(x), with x's sign; 0 of integers, NaN of infinities."""
    return x - trunc(x)


@differentiated(lambda g, y, x, decimals=0: None)
def round(x: Tensor, decimals: int = 0) -> Tensor:
    """The nearest integer, a half to the even one; integers are unchanged.

    With `decimals` the nearest multiple of 10**-decimals, up to rounding of the scaled value.
    """
    if not x.dtype.is_float:
        return x
    wide = x.cast(x.dtype.compute)
    if decimals > 0:
        wide = _half_even(wide * 10.0**decimals) / 10.0**decimals
    elif decimals < 0:
        wide = _half_even(wide / 10.0**-decimals) * 10.0**-decimals
    else:
        wide = _half_even(wide)
    return wide.cast(x.dtype)


def _half_even(x: Tensor) -> Tensor:
    # floor(x + 0.5) would round the sum: 0.49999997 + 0.5 is 1 in f32. The rest below the floor is
    # exact.
    size = abs(x)
    below = size.floor()
    rest = size - below  # exact; NaN for infinities, which then stay
    is_odd = below != (below * 0.5).floor() * 2
    up = (rest > 0.5) | ((rest == 0.5) & is_odd)
    return odd(where(up, below + 1, below), x)


# --- floats in parts, by their bits ---------------------------------------------------------------


class Parts(NamedTuple):
    """What `frexp` gives: x = mantissa * 2**exponent, 0.5 <= |mantissa| < 1 (int32 exponents)."""

    mantissa: Tensor
    exponent: Tensor


def _layout(dtype: DType) -> tuple[int, int]:
    """The bits of the mantissa, and the bias of the exponent."""
    return (52, 1023) if dtype is float64 else (23, 127)


def frexp(x: Tensor) -> Parts:
    """x in parts; zeros, infinities and NaN are their own mantissas, with the exponent 0."""
    wide = x.cast(x.dtype.compute if x.dtype.is_float else "float32")
    digits, bias = _layout(wide.dtype)
    # A subnormal has no exponent of its own: times 2**(digits + 2) it is normal, and the power
    # comes off again.
    lift = float(2 ** (digits + 2))
    subnormal = abs(wide) < 2.0 ** (1 - bias)
    normal = where(subnormal, wide * lift, wide)
    bits = bits_of(normal)
    field = (bits >> digits) & (2 * bias + 1)
    # The exponent field of numbers in [1/2, 1) is bias - 1: with it in place only the mantissa is
    # left.
    half = (bits & ~((2 * bias + 1) << digits)) | ((bias - 1) << digits)
    plain = wide.isfinite() & (wide != 0)
    mantissa = _mantissa(wide, half, plain)
    exponent = field - (bias - 1) - where(subnormal, digits + 2, 0)
    back = x.dtype if x.dtype.is_float else wide.dtype
    return Parts(mantissa.cast(back), where(plain, exponent, 0).cast(int32))


def _mantissa_derivative(
    g: Tensor, y: Tensor, x: Tensor, half: Tensor, plain: Tensor
) -> tuple[Tensor, None, None]:
    """x has a factor that is constant between powers of 2."""
    return where(plain, g * (y / where(plain, x, 1)).stop_gradient(), g), None, None


@differentiated(_mantissa_derivative)
def _mantissa(x: Tensor, half: Tensor, plain: Tensor) -> Tensor:
    return where(plain, half.bitcast(x.dtype), x)


# --- roots ----------------------------------------------------------------------------------------


@in_float
@differentiated(lambda g, y, x: g / (3 * y * y))
def cbrt(x: Tensor) -> Tensor:
    """The cube root with x's sign, within 1 ulp: exp2(log2(|x|) / 3), then a step of Newton's."""
    a = abs(x)
    # The start is right to all but a few digits, and Newton's step doubles the digits that are
    # right.
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
    # Squares overflow where |x| is above 1.8e19 in f32; the ratio's square is at most 1.
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
"""The coefficients of a polynomial for float32 and for float64, the constant one first."""


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


def rising_bits(x: Tensor) -> Tensor:
    """Integers in the order of floats, NaN the greatest; equals stay equal."""
    width = dtypes.dtype_of(f"int{x.dtype.bits}")
    # Both zeros get one pattern: equals must stay equal, or a stable sort would order -0 before 0.
    rising = flipped_bits(bitcast(where(x == 0, 0.0, x), width))
    return where(x == x, rising, np.iinfo(width.numpy).max)


def flipped_bits(bits: Tensor) -> Tensor:
    """Bits with those of negative numbers flipped below the sign: a float's become integers in the
    floats' order, and back.
    """
    return bits ^ ((bits >> (bits.dtype.bits - 1)) & np.iinfo(bits.dtype.numpy).max)


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

"""Rounding to whole numbers, remainders of division, and the parts of floats by their bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from luminal.base.dtypes import bool_, float64, int32
from luminal.base.errors import DTypeError
from luminal.frontend.handle import Operand, apply
from luminal.frontend.pointwise.binary import mod, unified, where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.pointwise.unary import bits_of, odd

if TYPE_CHECKING:
    from luminal.base.dtypes import DType
    from luminal.frontend.tensor import Tensor


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
    size = abs(x)
    below = size.floor()
    rest = size - below  # exact; NaN for infinities, which then stay
    is_odd = below != (below * 0.5).floor() * 2
    up = (rest > 0.5) | ((rest == 0.5) & is_odd)
    return odd(where(up, below + 1, below), x)


def remainder(a: Operand, b: Operand) -> Tensor:
    """a % b with the sign of b, as Python's; integers by 0 give 0."""
    return mod(a, b)


def fmod(a: Operand, b: Operand) -> Tensor:
    """The exact remainder with the sign of a, as C's; integers by 0 give 0.

    |a| % |b| with a's sign.
    """
    (x, y), result = unified("fmod", (a, b))
    if result is bool_:
        raise DTypeError("fmod: bools have no remainder; cast to an integer")
    if result.is_float:
        return odd(apply("Mod", abs(x), abs(y)), x).cast(result)
    rest = apply("Mod", x, y)
    if not result.is_signed:
        return rest
    return where((rest != 0) & ((x < 0) != (y < 0)), rest - y, rest)


# --- float parts ----------------------------------------------------------------------------------


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
    lift = float(2 ** (digits + 2))
    subnormal = abs(wide) < 2.0 ** (1 - bias)
    normal = where(subnormal, wide * lift, wide)
    bits = bits_of(normal)
    field = (bits >> digits) & (2 * bias + 1)
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


def ldexp(x: Tensor, exponent: Operand) -> Tensor:
    """x * 2**exponent."""
    (a, b), result = unified("ldexp", (x, exponent), floating=True)
    return (a * b.exp2()).cast(result)


def nextafter(a: Operand, b: Operand) -> Tensor:
    """The float next to a in the direction of b, in their common dtype; b where they are equal.

    By the bits: one more is the next magnitude.
    """
    (x, y), result = unified("nextafter", (a, b), floating=True)
    return _next(x, y, result)


@differentiated(lambda g, z, x, y, result: (g, None))
def _next(x: Tensor, y: Tensor, result: DType) -> Tensor:
    stored = x.cast(result)
    bits = stored.bitcast(f"int{result.bits}")
    away = (x > 0) == (y > x)  # the magnitude grows
    moved = where(away, bits + 1, bits - 1)
    least = (
        x.graph.constant(1, bits.dtype),
        x.graph.constant(1 - 2 ** (result.bits - 1), bits.dtype),
    )
    smallest = where(y > 0, *least)  # subnormal, with y's sign
    found = where(x == 0, smallest, moved).bitcast(result)
    found = where(x == y, y.cast(result), found)
    return where(x != x, stored, where(y != y, y.cast(result), found))

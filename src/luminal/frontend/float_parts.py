"""Mantissas, exponents and neighbours of floats, by their bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from luminal.dtypes import float64, int32
from luminal.frontend.binary import unified, where
from luminal.frontend.derivatives import differentiated
from luminal.frontend.handle import Operand
from luminal.frontend.polynomial import bits_of

if TYPE_CHECKING:
    from luminal.dtypes import DType
    from luminal.frontend.tensor import Tensor


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

"""What the elementary functions share: polynomials, and the sign bit of floats.

Coefficients in this folder are weighted least-squares fits at Chebyshev points, made with 50-digit
arithmetic; those of f32 were rounded one after the other, the rest fitted again each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from luminal.dtypes import DType, float64, int32, int64
from luminal.frontend.binary import where

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

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

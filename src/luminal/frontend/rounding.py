"""Rounding to whole numbers, and remainders of division."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal.dtypes import bool_
from luminal.errors import DTypeError
from luminal.frontend.binary import mod, unified, where
from luminal.frontend.derivatives import differentiated
from luminal.frontend.handle import Operand, apply
from luminal.frontend.polynomial import odd

if TYPE_CHECKING:
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

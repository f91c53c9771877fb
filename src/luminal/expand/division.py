"""FloorDiv and Mod of HLIR."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.dtypes import DType, float32, float64
from luminal.expand.builder import Builder
from luminal.expand.fold import constant
from luminal.expand.ir import Operand

# --- integers -------------------------------------------------------------------------------------


def _truncated(b: Builder, dtype: DType, x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """(quotient toward zero, remainder) where y is neither 0 nor -1; by 1 elsewhere.

    Few machines divide vectors of integers. A float quotient of n-bit integers that has more than
    2n bits of precision to spare truncates to the exact one: f32 up to 16 bits, f64 up to 32.
    """
    unsafe = b.op("eq", y, 0)
    if dtype.is_signed:
        unsafe = b.op("or", unsafe, b.op("eq", y, -1))
    # Both would trap on some machines (0, and the lowest value by -1), so neither gets to the
    # instruction.
    y = b.op("select", unsafe, 1, y)
    if x.type.lanes == 1 or dtype.bits == 64:
        quotient = b.op("quotient", x, y)
    else:
        wide = float64 if dtype.bits == 32 else float32
        quotient = b.cast(b.op("div", b.cast(x, wide), b.cast(y, wide)), dtype)
    return quotient, b.op("sub", x, b.op("mul", quotient, y))


def _wrong_sign(b: Builder, remainder: Operand, y: Operand) -> Operand:
    """The mask that holds where the truncated remainder is not 0 and has not the divisor's sign."""
    differ = b.op("lt", b.op("xor", remainder, y), 0)
    return b.op("and", differ, b.op("ne", remainder, 0))


def int_floor_div(b: Builder, dtype: DType, args: Sequence[Operand]) -> Operand:
    """Rounds down; by 0 gives 0; the lowest value // -1 wraps to itself."""
    x, y = args
    quotient, remainder = _truncated(b, dtype, x, y)
    zero = constant(x.type, 0)
    if dtype.is_signed:
        quotient = b.op("sub", quotient, b.cast(_wrong_sign(b, remainder, y), dtype))
        # By -1 a quotient is the negation, which wraps for the lowest value as NumPy has it.
        quotient = b.op("select", b.op("eq", y, -1), b.op("sub", zero, x), quotient)
    return b.op("select", b.op("eq", y, 0), zero, quotient)


def int_mod(b: Builder, dtype: DType, args: Sequence[Operand]) -> Operand:
    """The sign of y; by 0 gives 0 (as by 1: the remainder is 0 already)."""
    x, y = args
    _, remainder = _truncated(b, dtype, x, y)
    if not dtype.is_signed:
        return remainder
    moved = b.op("add", remainder, y)
    return b.op("select", _wrong_sign(b, remainder, y), moved, remainder)


# --- floats: the steps of np.floor_divide and np.remainder ----------------------------------------


def float_floor_div(b: Builder, dtype: DType, args: Sequence[Operand]) -> Operand:
    """(x - fmod(x, y)) / y, snapped to an integer; the plain quotient where y is 0."""
    x, y = args
    mod = b.op("fmod", x, y)
    ratio = b.op("div", x, y)
    quotient = b.op("div", b.op("sub", x, mod), y)
    quotient = b.op("select", _opposite(b, mod, y), b.op("sub", quotient, 1.0), quotient)
    floor = b.op("floor", quotient)
    # The division before may have rounded just below the integer that it stands for; NumPy corrects
    # it in the same way.
    snap = b.op("lt", 0.5, b.op("sub", quotient, floor))
    floor = b.op("select", snap, b.op("add", floor, 1.0), floor)
    signed_zero = b.op("copysign", 0.0, ratio)
    floor = b.op("select", b.op("eq", quotient, 0.0), signed_zero, floor)
    return b.op("select", b.op("eq", y, 0.0), ratio, floor)


def float_mod(b: Builder, dtype: DType, args: Sequence[Operand]) -> Operand:
    """fmod(x, y), moved by y where the signs differ; a zero gets the sign of y."""
    x, y = args
    mod = b.op("fmod", x, y)
    moved = b.op("select", _opposite(b, mod, y), b.op("add", mod, y), mod)
    signed_zero = b.op("copysign", 0.0, y)
    return b.op("select", b.op("eq", mod, 0.0), signed_zero, moved)


def _opposite(b: Builder, mod: Operand, y: Operand) -> Operand:
    """The mask that holds where mod is not 0 and (mod < 0) != (y < 0)."""
    differ = b.op("xor", b.op("lt", mod, 0.0), b.op("lt", y, 0.0))
    return b.op("and", differ, b.op("ne", mod, 0.0))

"""The pointwise primitives of HLIR as operations of expanded IR, total on every input.

`POINTWISE[op](b, dtype, args)` writes one op on operands of a dtype (the arms', for Select). The
lesser of two floats, HLIR's `-max(-x, -y)`, and a magnitude, `max(x, -x)`, are one operation each:
NaN wins in both and -0 lies below +0, so that the bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from luminal.base.dtypes import DType, bool_, dtype_of
from luminal.expand import elementary
from luminal.expand.builder import Builder
from luminal.expand.division import float_floor_div, float_mod, int_floor_div, int_mod
from luminal.expand.fold import constant
from luminal.expand.ir import Constant, Operand, Value

Emit = Callable[[Builder, DType, Sequence[Operand]], Operand]


def _plain(name: str) -> Emit:
    """One operation of the same operands."""
    return lambda b, dtype, args: b.op(name, *args)


def _function(write: Callable[[Builder, Operand], Operand]) -> Emit:
    return lambda b, dtype, args: write(b, args[0])


def _reciprocal(b: Builder, dtype: DType, args: Sequence[Operand]) -> Operand:
    return b.op("div", 1.0, args[0])


def _by_kind(of_floats: Emit, of_integers: Emit) -> Emit:
    return lambda b, dtype, args: (of_floats if dtype.is_float else of_integers)(b, dtype, args)


def _product(b: Builder, dtype: DType, args: Sequence[Operand]) -> Operand:
    x, y = args
    if dtype.is_float:
        for value, factor in ((x, y), (y, x)):
            if factor == constant(factor.type, -1.0):
                return _negative(b, value, factor)
    return b.op("mul", x, y)


def _negative(b: Builder, x: Operand, minus_one: Operand) -> Operand:
    if isinstance(x, Constant):
        return _flipped(x)
    origin = b.made.get(x.id)
    if origin is not None and origin.op == "max":
        operands = [_negated(b, arg) for arg in origin.args]
        if None not in operands:
            return b.op("min", *(operand for operand in operands if operand is not None))
    return b.op("mul", x, minus_one)


def _negated(b: Builder, x: Operand) -> Operand | None:
    """What x is known to be the negative of."""
    if isinstance(x, Constant):
        return _flipped(x)
    origin = b.made.get(x.id)
    if origin is not None and origin.op == "mul" and origin.args[1] == constant(x.type, -1.0):
        return origin.args[0]
    return None


def _flipped(x: Constant) -> Constant:
    """A float constant with its signs flipped."""
    sign = 1 << x.type.dtype.bits - 1
    size = x.type.dtype.size
    return Constant(x.type, b"".join((n ^ sign).to_bytes(size, "little") for n in x.bits))


def _greater(b: Builder, dtype: DType, args: Sequence[Operand]) -> Operand:
    x, y = args
    if dtype is bool_:
        return b.op("or", x, y)
    if dtype.is_float:
        for value, other in ((x, y), (y, x)):
            if isinstance(other, Value) and _negated(b, other) == value:
                return b.op("abs", value)
    return b.op("max", x, y)


def _less(b: Builder, dtype: DType, args: Sequence[Operand]) -> Operand:
    x, y = args
    return b.op("and", b.negation(x), y) if dtype is bool_ else b.op("lt", x, y)


def _within(b: Builder, dtype: DType, count: Operand) -> Operand:
    """Is the count of a shift below the width? Negative ones are huge."""
    return b.op("lt", b.bitcast(count, dtype_of(f"uint{dtype.bits}")), dtype.bits)


def _shift_left(b: Builder, dtype: DType, args: Sequence[Operand]) -> Operand:
    """0 where the count is negative or not below the width."""
    x, count = args
    within = _within(b, dtype, count)
    return b.op("select", within, b.op("shl", x, b.op("select", within, count, 0)), 0)


def _shift_right(b: Builder, dtype: DType, args: Sequence[Operand]) -> Operand:
    """Arithmetic for signed integers; 0 or -1 by sign where the count is negative or too large."""
    x, count = args
    within = _within(b, dtype, count)
    if dtype.is_signed:
        return b.op("shr", x, b.op("select", within, count, dtype.bits - 1))
    return b.op("select", within, b.op("shr", x, b.op("select", within, count, 0)), 0)


POINTWISE: Mapping[str, Emit] = {
    "Exp": _function(elementary.exp),
    "Log": _function(elementary.log),
    "Exp2": _function(elementary.exp2),
    "Log2": _function(elementary.log2),
    "Sin": _function(elementary.sin),
    "Cos": _function(elementary.cos),
    "Sqrt": _plain("sqrt"),
    "Recip": _reciprocal,
    "Floor": _plain("floor"),
    "Add": _plain("add"),
    "Mul": _product,
    "Div": _plain("div"),
    "FloorDiv": _by_kind(float_floor_div, int_floor_div),
    "Mod": _by_kind(float_mod, int_mod),
    "Maximum": _greater,
    "LessThan": _less,
    "Equal": _plain("eq"),
    "And": _plain("and"),
    "Or": _plain("or"),
    "Xor": _plain("xor"),
    "Shl": _shift_left,
    "Shr": _shift_right,
    "Select": _plain("select"),
}
"""Casts have a target as well: see `casts`."""

"""Values and operations of expanded IR as expressions of C, for one lane.

C leaves it undefined that signed integers wrap: they are added, multiplied and shifted as unsigned
ones, and short ones in 32 bits, since C would promote those to signed ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from luminal.base.dots import WORD_DOTS
from luminal.base.dtypes import DType, int32, int64, uint32, uint64
from luminal.codegen.c_family.dialect import Dialect
from luminal.expand.ir import Constant, Operand, Type
from luminal.expand.operations import IN_PAIRS

WRAPPING = {"add": "+", "sub": "-", "mul": "*", "shl": "<<"}
INFIX = {
    **WRAPPING, "div": "/", "quotient": "/", "remainder": "%", "shr": ">>",
    "and": "&", "or": "|", "xor": "^", "lt": "<", "le": "<=", "eq": "==", "ne": "!=",
}  # fmt: skip
FUNCTIONS = frozenset("fma sqrt floor abs copysign fmod sin cos".split())
EXTREMES = {"max": ">", "min": "<"}
INSTRUCTIONS = frozenset((
    "widen_half", "narrow_half", "narrow_bfloat", "power_of_two", *IN_PAIRS.values(), *WORD_DOTS,
))  # fmt: skip
"""Operations that only some dialects have, as functions of these names."""
SAME = frozenset(("splat", "extract", "any"))
"""What does nothing to a single lane."""

FLOAT_EXTREME = """{inline} {type} {name}_{dtype}(const {type} a, const {type} b)
{{
    if (a == b) return ({bits} < 0) == {takes_negative} ? a : b;
    return a {order} b ? a : b {order} a ? b : a + b;
}}"""
"""A NaN wins, and of zeros the one with the sign asked for."""


def float_extremes(dialect: Dialect, dtype: DType, inline: str) -> str:
    """The functions behind `max` and `min` of a float dtype."""
    # The sign of a zero shows in its bits only.
    bits = dialect.bitcast(int32 if dtype.size == 4 else int64, "a")
    texts = {
        name: FLOAT_EXTREME.format(
            inline=inline, type=dialect.types[dtype.short], name=name, dtype=dtype, bits=bits,
            takes_negative=int(name == "min"), order=order,
        )
        for name, order in EXTREMES.items()
    }  # fmt: skip
    return "\n".join(dialect.float_extreme(name, dtype, text) for name, text in texts.items())


def operand(dialect: Dialect, value: Operand) -> str:
    """A value's name, or a literal with the same bits."""
    return constant(dialect, value) if isinstance(value, Constant) else f"v{value.id}"


def constant(dialect: Dialect, value: Constant) -> str:
    """A literal; one that C cannot write by its value is written by its bits."""
    dtype, (bits,) = value.type.dtype, value.bits
    if dtype.kind == "bool":
        return "true" if bits else "false"
    suffix = dialect.suffixes.get(dtype.short, "")
    if dtype.is_float:
        number = float(value.values[0])
        if math.isfinite(number):
            # Hexadecimal, which no compiler rounds.
            return f"({number.hex()}{suffix})"
        unsigned = uint32 if dtype.size == 4 else uint64
        return dialect.bitcast(dtype, f"{bits:#x}{dialect.suffixes[unsigned.short]}")
    if dtype.is_signed and bits == 1 << dtype.bits - 1:  # its magnitude is no literal
        return f"({dialect.types[dtype.short]})(-{bits - 1}{suffix} - 1)"
    return f"({dialect.types[dtype.short]}){int(value.values[0])}{suffix}"


# A sum and a product must not become one instruction, or bits would differ from device to device:
# compilers are told so by options, never by the way that this is spelled.
def operation(dialect: Dialect, op: str, args: Sequence[str], of: DType, to: Type) -> str:
    """`op` on operands of dtype `of` (of the arms, for select)."""
    name = dialect.types[to.dtype.short]
    if op in SAME:
        return args[0]
    if op == "select":
        return f"{args[0]} ? {args[1]} : {args[2]}"
    if op == "cast":
        return f"({name}){args[0]}"
    if op == "bitcast":
        return dialect.bitcast(to.dtype, args[0])
    if op in EXTREMES and not of.is_float:
        return dialect.extreme(op, of, *args)
    if op in EXTREMES:
        return f"{op}_{of}({', '.join(args)})"
    if op in INSTRUCTIONS:
        return f"{op}({', '.join(args)})"
    if op in FUNCTIONS:
        return f"{dialect.function(op, of)}({', '.join(args)})"
    if op in WRAPPING and of.is_int:
        unsigned = dialect.types["u64" if of.size == 8 else "u32"]
        args = [f"({unsigned}){arg}" for arg in args]
    return f"({name})({args[0]} {INFIX[op]} {args[1]})"

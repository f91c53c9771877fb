"""The greatest of many floats by three integers, none of which waits for another.

Processors' own maximum forgets NaN and takes either of two zeros, so that the right one is six
operations in a row. But as signed integers the bits of floats have the order of what is not
negative, NaN after infinity, all that is negative before it and the other way round: the greatest
integer is the greatest float unless all are negative, the least one is it then (-0 the first of
them), and the greatest unsigned one says whether there is a NaN among the negative ones. Three
operations a vector, and what they mean is asked once, after the loop.
"""

from __future__ import annotations

from functools import partial

from luminal.base.dtypes import DType, dtype_of
from luminal.base.records import dataclass
from luminal.expand.builder import Builder
from luminal.expand.fold import constant
from luminal.expand.ir import Operand, Type
from luminal.hlir.monoid import MAXIMUM
from luminal.kernel.tile_ir import (
    Carry,
    Contract,
    If,
    Load,
    Loop,
    Map,
    Once,
    Prefix,
    Reduce,
    Runs,
    Statement,
    Store,
    Tile,
)

Held = tuple[Operand, ...]
"""The greatest signed integer, the least one, the greatest unsigned one."""


# Which float it is is written only where something asks: asked for at each step of a fold, the
# answers that nobody used were a fifth of a softmax's code.
@dataclass(frozen=True, slots=True)
class Greatest:
    """The greatest of floats of a dtype, as long as nobody asks which float it is."""

    held: Held
    dtype: DType

    @property
    def type(self) -> Type:
        """The type of the float."""
        return Type(self.dtype, self.held[0].type.lanes)

    def value(self, b: Builder) -> Operand:
        """The float, a NaN if there is one; made where the integers are."""
        most, least, unsigned = self.held
        op = partial(b.op, hoisted=True)
        lowest = int.from_bytes(MAXIMUM.identity_bytes(self.dtype), "little")
        is_nan = op("lt", constant(unsigned.type, lowest), unsigned)
        number = op("select", op("lt", most, 0), least, most)
        floats = [b.bitcast(bits, self.dtype, hoisted=True) for bits in (unsigned, number)]
        return op("select", is_nan, *floats)


def greatest_of(loop: Loop, carry: Carry) -> Map | None:
    """The statement that makes of a carried value the greater of it and another, if the loop does
    nothing else with it.
    """
    both = {carry.inner, carry.next}
    uses = [statement for statement in loop.body if not both.isdisjoint(_read(statement))]
    fold = next(
        (
            statement
            for statement in loop.body
            if isinstance(statement, Map) and statement.out == carry.next
        ),
        None,
    )
    # Any other use would ask for the float in every turn, which costs more than the integers save.
    if fold is None or fold.op != MAXIMUM.combine or uses != [fold]:
        return None
    return fold if fold.args.count(carry.inner) == 1 else None


def _read(statement: Statement) -> tuple[Tile, ...]:
    match statement:
        case Map():
            return statement.args
        case Store():
            return (statement.value, *(tile for _, tile in statement.indices))
        case Load():
            return tuple(tile for _, tile in statement.indices)
        case Contract():
            return statement.acc, statement.a, statement.b
        case Reduce() | Prefix():
            return (statement.value,)
        case Loop() | Runs() | If() | Once():
            inits = [carry.init for carry in getattr(statement, "carries", ())]
            return (*inits, *(tile for inner in statement.body for tile in _read(inner)))
    return ()


def has_integers(b: Builder, type_: Type) -> bool:
    """Is the greater of integers as wide as these floats one instruction?"""
    dtype = type_.dtype
    return dtype.is_float and b.has("max", Type(_integers(dtype)[0], type_.lanes))


def _integers(dtype: DType) -> tuple[DType, DType]:
    return dtype_of(f"int{dtype.bits}"), dtype_of(f"uint{dtype.bits}")


def begun(b: Builder, value: Operand | Greatest) -> Held:
    """The greatest so far of one value, or of all that it is the greatest of."""
    if isinstance(value, Greatest):
        return value.held
    signed, unsigned = (b.bitcast(value, dtype) for dtype in _integers(value.type.dtype))
    return signed, signed, unsigned


def joined(b: Builder, one: Held, other: Held) -> Held:
    """The greatest of the values of both."""
    return tuple([b.op(*pair) for pair in zip(("max", "min", "max"), one, other, strict=True)])


def halves(b: Builder, value: Operand | Greatest) -> list[Operand | Greatest]:
    """The lanes of a vector in two; as floats where a half is too narrow for integers."""
    if isinstance(value, Greatest):
        if has_integers(b, Type(value.dtype, value.type.lanes // 2)):
            sides = zip(*(_halves(b, held) for held in value.held), strict=True)
            return [Greatest(side, value.dtype) for side in sides]
        value = value.value(b)
    return [*_halves(b, value)]


def _halves(b: Builder, value: Operand) -> Held:
    return b.op("lower", value), b.op("upper", value)

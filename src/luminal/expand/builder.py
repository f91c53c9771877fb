"""Builds expanded IR: blocks of statements that are still open, and values known so far.

Equal operations on equal operands are one value. Index arithmetic is put into the outermost open
block that has its operands: a block that is open holds what comes before the loop inside it, so
that this hoists it out of every loop it does not depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType, int32
from luminal.expand.fold import constant, converted, folded, uniform
from luminal.expand.ir import (
    INDEX,
    Apply,
    Carry,
    Choice,
    Constant,
    If,
    Load,
    Loop,
    Operand,
    Statement,
    Store,
    Type,
    Value,
)
from luminal.expand.operations import OPERATIONS

Argument = Operand | bool | int | float
"""A number stands for a constant of the other operands' type."""


def integer(value: int) -> Constant:
    """An integer as a constant of type i64."""
    return constant(INDEX, value)


_OPERANDS = (Value, Constant)
Instructions = frozenset[tuple[str, Type]]
"""Operations that only some machines have, and the types that they make."""


class Block:
    """Statements of a body under construction."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []


class OpenLoop:
    """What the body of a loop under construction sees; it sets `next`. `results` come after it."""

    def __init__(self, index: Operand, inner: Sequence[Operand]) -> None:
        self.index = index
        self.inner = inner
        self.next: Sequence[Operand] = ()
        self.results: Sequence[Operand] = ()


# Addresses are integers, not pointers: a buffer of OpenCL has none to keep, and LLVM folds sums
# into addressing modes as well as it folds pointers that were prepared in every loop. Other values
# stay where tile IR put them, since hoisted out of an If they would be computed where nobody asks.
class Builder:
    """Appends statements to the innermost block, or hoists them."""

    def __init__(self, instructions: Instructions = frozenset()) -> None:
        self.instructions = instructions
        self.blocks = [Block()]
        self.known: dict[Hashable, tuple[Value, int, Block]] = {}  # with its block's depth
        self.depths: dict[int, int] = {}  # of values: the block that has them
        self.made: dict[int, Apply] = {}  # by their results
        self.count = 0

    # --- values -----------------------------------------------------------------------------------

    def value(self, type_: Type, depth: int | None = None) -> Value:
        """A fresh value, defined in the block at `depth` (the innermost)."""
        self.count += 1
        self.depths[self.count] = len(self.blocks) - 1 if depth is None else depth
        return Value(self.count, type_)

    def depth(self, operand: Operand) -> int:
        """The outermost block in which the operand may be used."""
        return self.depths[operand.id] if isinstance(operand, Value) else 0

    def op(self, name: str, *args: Argument, hoisted: bool = False) -> Operand:
        """An operation whose type follows from its operands."""
        result = OPERATIONS[name].result
        assert result is not None, name
        operands = _typed(name, args)
        type_ = result([arg.type for arg in operands])
        # Where all operands are Values nothing is known of them, so there is nothing to fold. That
        # is most calls, and building is most of a kernel's compile.
        constant = None if operands is args else folded(name, operands, type_)
        return constant if constant is not None else self._apply(name, operands, type_, hoisted)

    def cast(self, value: Operand, dtype: DType, *, hoisted: bool = False) -> Operand:
        """The value in another dtype; see the operation."""
        return self._converted("cast", value, dtype, hoisted)

    def bitcast(self, value: Operand, dtype: DType, *, hoisted: bool = False) -> Operand:
        """A value of the same bytes in another dtype."""
        return self._converted("bitcast", value, dtype, hoisted)

    def _converted(self, name: str, value: Operand, dtype: DType, hoisted: bool) -> Operand:
        if value.type.dtype is dtype:
            return value
        constant = converted(value, dtype) if name == "cast" else None
        if constant is not None:
            return constant
        return self._apply(name, (value,), Type(dtype, value.type.lanes), hoisted)

    def has(self, name: str, type_: Type) -> bool:
        """Does the machine have an instruction for an operation that only some have?"""
        return (name, type_) in self.instructions

    def spread(self, value: Operand, lanes: int) -> Operand:
        """A scalar in every lane; a vector as it is."""
        if value.type.lanes == lanes:
            return value
        type_ = Type(value.type.dtype, lanes)
        if isinstance(value, Constant):
            return Constant(type_, value.data * lanes)
        return self._apply("splat", (value,), type_, hoisted=True)

    def lane(self, value: Operand, lane: int) -> Operand:
        """One lane of a vector; a scalar as it is."""
        if value.type.lanes == 1:
            return value
        if isinstance(value, Constant):
            size = value.type.dtype.size
            return Constant(Type(value.type.dtype), value.data[lane * size :][:size])
        return self.op("extract", value, integer(lane))

    def count_of(self, mask: Operand) -> Operand:
        """The number of lanes in which a mask holds, as an i64."""
        return self.cast(mask, INDEX.dtype) if mask.type.lanes == 1 else self.op("count", mask)

    def shuffle(self, x: Operand, y: Operand, lanes: Sequence[int]) -> Operand:
        """Lanes of `x` and then `y` by number."""
        picked = Constant(Type(int32, len(lanes)), np.array(lanes, np.int32).tobytes())
        if isinstance(x, Constant) and isinstance(y, Constant):
            values = np.concatenate((x.values, y.values))[list(lanes)]
            return Constant(Type(x.type.dtype, len(lanes)), values.tobytes())
        return self.op("shuffle", x, y, picked)

    def _apply(self, name: str, args: tuple[Operand, ...], type_: Type, hoisted: bool) -> Operand:
        # Of one operand the type does not follow (a cast may go anywhere), of several it does.
        key = (name, args, type_) if len(args) == 1 else (name, args)
        if hoisted:
            depth = max([self.depths[arg.id] for arg in args if type(arg) is Value], default=0)
        else:
            # Values stay: one that stands under a branch must not be computed outside of it.
            depth = len(self.blocks) - 1
        earlier = self.known.get(key)
        # At that depth another block may be open by now,
        # which does not see what an ended one defined.
        if earlier is not None and earlier[1] <= depth and self.blocks[earlier[1]] is earlier[2]:
            return earlier[0]
        out = self.value(type_, depth)
        self.made[out.id] = statement = Apply(out, name, args)
        block = self.blocks[depth]
        block.statements.append(statement)
        self.known[key] = out, depth, block
        return out

    def both(self, masks: Sequence[Operand], *, hoisted: bool = False) -> Operand | None:
        """The mask that holds where all of these hold; None for everywhere."""
        joint: Operand | None = None
        for mask in masks:
            joint = mask if joint is None else self.op("and", joint, mask, hoisted=hoisted)
        return joint

    def negation(self, condition: Operand) -> Operand:
        """A mask that holds where a bool does not."""
        return self.op("xor", condition, True)

    # --- memory -----------------------------------------------------------------------------------

    def load(
        self,
        type_: Type,
        buffer: str,
        address: Operand,
        mask: Operand | None = None,
        distance: int = 0,
    ) -> Operand:
        """Elements of a buffer as they lie in memory."""
        out = self.value(type_)
        self.emit(Load(out, buffer, address, mask, distance))
        return out

    def store(
        self,
        buffer: str,
        address: Operand,
        value: Operand,
        mask: Operand | None = None,
        distance: int = 0,
    ) -> None:
        """Store elements in the form that they have in memory."""
        self.emit(Store(buffer, address, value, mask, distance))

    def emit(self, statement: Statement) -> None:
        """Append a statement to the innermost block."""
        self.blocks[-1].statements.append(statement)

    # --- control ----------------------------------------------------------------------------------

    def open(self, type_: Type) -> Value:
        """Opens a block inside the innermost one, which has a value of its own."""
        self.blocks.append(Block())
        return self.value(type_)

    @contextmanager
    def loop(
        self, start: Operand, stop: Operand, step: int, inits: Sequence[Operand] = ()
    ) -> Iterator[OpenLoop]:
        """A loop over i64 with carried values."""
        index = self.open(INDEX)
        inner = [self.value(init.type) for init in inits]
        open_ = OpenLoop(index, inner)
        yield open_
        body = self.close()
        # Numbered after the body is closed: they are values of the block around, where its end is
        # known.
        results = [self.value(init.type) for init in inits]
        carries = map(Carry, results, inits, inner, open_.next)
        self.emit(Loop(index, start, stop, step, tuple(carries), body))
        open_.results = results

    @contextmanager
    def branch(
        self, condition: Operand, *, seldom: bool = False
    ) -> Iterator[Callable[[Operand, Operand], Value]]:
        """What is built inside runs where the scalar holds. The function that the block gets makes
        a value for after it: the first operand where it ran, else the second.
        """
        choices: list[Choice] = []
        outer = len(self.blocks) - 1

        def choose(then: Operand, otherwise: Operand) -> Value:
            choices.append(Choice(self.value(then.type, outer), then, otherwise))
            return choices[-1].result

        self.blocks.append(Block())
        yield choose
        body = self.close()
        self.emit(If(condition, tuple(choices), body, seldom))

    def where(self, condition: Operand, write: Callable[[], None]) -> None:
        """What `write` builds runs where the scalar holds; where that is known, without a test."""
        constant = uniform(condition)
        if constant is None:
            with self.branch(condition):
                write()
        elif constant:
            write()

    def close(self) -> tuple[Statement, ...]:
        """Ends the innermost block; what is known there is known no more."""
        return tuple(self.blocks.pop().statements)


def _typed(name: str, args: tuple[Argument, ...]) -> tuple[Operand, ...]:
    """The operands, with numbers as constants of the type that the others have; the same tuple
    where all are Values, of which nothing is known.
    """
    for arg in args:
        if type(arg) is not Value:
            break
    else:
        return args  # type: ignore[return-value]
    for arg in args[name == "select" :]:
        if isinstance(arg, _OPERANDS):
            type_ = arg.type
            return tuple([a if isinstance(a, _OPERANDS) else constant(type_, a) for a in args])
    raise AssertionError(f"{name}: no operand has a type")


def truth(b: Builder, value: Operand, *, hoisted: bool = False) -> Operand:
    """`value != 0`; of a bool as an integer, the bool itself."""
    if value.type.dtype is dtypes.bool_:
        return value
    origin = b.made.get(value.id) if isinstance(value, Value) else None
    if origin is not None and origin.op == "cast" and origin.args[0].type.dtype is dtypes.bool_:
        return origin.args[0]
    return b.op("ne", value, 0, hoisted=hoisted)

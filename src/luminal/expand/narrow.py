"""Integers in 32 bits where 64 are not needed: GPUs take two instructions for a 64-bit sum.

What addresses, conditions and loops' bounds are computed of is i64. Where bounds of the lane, of
the chunk and of parameters say that an integer fits, and so do those that it is computed of, it is
an i32; it becomes an i64 where something asks for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from luminal.base.dtypes import DType, int32, int64
from luminal.expand.fold import constant, uniform
from luminal.expand.ir import (
    INDEX,
    Accumulate,
    Apply,
    AtPhase,
    Await,
    Barrier,
    Begin,
    Carry,
    Choice,
    Commit,
    Copy,
    CopyBox,
    Exchange,
    Fetch,
    If,
    Kernel,
    Left,
    Load,
    LoadMatrix,
    LoadSums,
    Loop,
    Multiply,
    MultiplyLeft,
    Operand,
    Publish,
    Statement,
    Store,
    Type,
    Value,
)
from luminal.expand.ranges import Ranges
from luminal.expand.wide import fresh_values
from luminal.shape.interval import Interval

NARROW = Type(int32)
SAME = frozenset(
    ("add", "sub", "mul", "and", "or", "xor", "min", "max", "quotient", "remainder", "select")
)
"""Operations that give in 32 bits what they give in 64, if operands and results fit."""
SHIFTS = ("shl", "shr")
COMPARISONS = ("lt", "le", "eq", "ne")


def narrowed(kernel: Kernel) -> Kernel:
    """The kernel with integers of 32 bits where they are proved to be enough."""
    return _Narrowing(kernel).kernel()


def fits(interval: Interval) -> bool:
    """Are all integers of an interval an i32?"""
    return interval.at_least(-(2**31)) and interval.at_most(2**31 - 1)


class _Narrowing:
    def __init__(self, kernel: Kernel) -> None:
        self.source = kernel
        self.ranges = Ranges(kernel)
        self.fresh = fresh_values(kernel)
        self.short: dict[int, Value] = {}  # i64 values as the i32 that stand for them
        self.is_gone: set[int] = set()  # those that nothing defines any more
        self.out: list[Statement] = []

    def kernel(self) -> Kernel:
        source = self.source
        outer = [param.value for param in source.params]
        outer += [] if source.lane is None else [source.lane]
        setup, _ = self.body(source.setup, outer)
        # What scratch begins at is an i64, as are all numbers that a worker starts with.
        self.out = list(setup)
        scratch = tuple(replace(room, offset=self.long(room.offset)) for room in source.scratch)
        setup = tuple(self.out)
        numbers = [value for value in (source.chunk, source.begin) if value is not None]
        body, _ = self.body(source.body, numbers)
        return replace(source, setup=setup, scratch=scratch, body=body)

    def body(
        self, body: Sequence[Statement], defined: Sequence[Value] = (), ends: Sequence[Operand] = ()
    ) -> tuple[tuple[Statement, ...], list[Operand]]:
        """A body, in which values of its own have a short form from the start, and what is asked of
        it at its end.
        """
        outer, self.out = self.out, []
        for value in defined:
            if fits(self.ranges.of(value)):
                self.short[value.id] = self.cast(value, int32)
        for statement in body:
            self.statement(statement)
        last = [self.long(end) for end in ends]
        inner, self.out = tuple(self.out), outer
        return inner, last

    # --- operands ---------------------------------------------------------------------------------

    def value(self, type_: Type) -> Value:
        return Value(next(self.fresh), type_)

    def cast(self, value: Operand, dtype: DType) -> Value:
        out = self.value(Type(dtype))
        self.out.append(Apply(out, "cast", (value,)))
        return out

    def short_of(self, operand: Operand) -> Operand | None:
        """The operand in 32 bits, if it is an i64 that has such a form."""
        if operand.type != INDEX:
            return None
        number = uniform(operand)
        if number is not None:
            return constant(NARROW, number) if fits(Interval(number, number)) else None
        assert isinstance(operand, Value)
        return self.short.get(operand.id)

    def long(self, operand: Operand) -> Operand:
        """The operand as it was, which may have to be made of its short form."""
        if isinstance(operand, Value) and operand.id in self.is_gone:
            return self.cast(self.short[operand.id], int64)
        return operand

    def all_short(self, operands: Sequence[Operand]) -> tuple[Operand, ...] | None:
        """All operands in 32 bits, but those of other types; None where one has no such form."""
        shortened = [
            self.short_of(operand) if operand.type == INDEX else operand for operand in operands
        ]
        narrowed = [operand for operand in shortened if operand is not None]
        return tuple(narrowed) if len(narrowed) == len(shortened) else None

    # --- statements -------------------------------------------------------------------------------

    def statement(self, statement: Statement) -> None:
        match statement:
            case Apply():
                self.apply(statement)
            case Load() | Store() | Fetch() | LoadMatrix() | LoadSums():
                self.access(statement)
            case Loop():
                self.loop(statement)
            case If(_, choices, body):
                inside, ends = self.body(body, ends=[choice.then for choice in choices])
                chosen = tuple(
                    Choice(choice.result, then, self.long(choice.otherwise))
                    for choice, then in zip(choices, ends, strict=True)
                )
                self.out.append(replace(statement, choices=chosen, body=inside))
            case Exchange(_, value):
                self.out.append(replace(statement, value=self.long(value)))
            case Copy(_, address, distance, _, source, source_distance):
                self.out.append(
                    replace(
                        statement,
                        address=self.place(address, distance),
                        source_address=self.place(source, source_distance),
                    )
                )
            case AtPhase(_, _, address, number):
                address, number = self.place(address, 0), self.place(number, 0)
                self.out.append(replace(statement, address=address, number=number))
            case CopyBox(_, address, distance, _, origin, _, turn, _):
                moved = self.place(address, distance)
                places = tuple(self.place(position, 0) for position in origin)
                turn = self.place(turn, 0)
                self.out.append(replace(statement, address=moved, origin=places, turn=turn))
            case MultiplyLeft() | Accumulate():
                *a, b = map(self.moved, statement.left)
                statement = replace(statement, a=a[0], b=b) if a else replace(statement, b=b)
                if isinstance(statement, Accumulate):
                    address = self.place(statement.address, statement.distance)
                    scales = tuple(map(self.moved, statement.scales))
                    statement = replace(statement, address=address, scales=scales)
                self.out.append(statement)
            case Begin(lifts):
                self.out.append(Begin(tuple(map(self.moved, lifts))))
            case Barrier() | Multiply() | Publish() | Commit() | Await():
                self.out.append(statement)

    def moved(self, left: Left) -> Left:
        """What a device reads in shared memory, by a narrow address."""
        return replace(left, address=self.place(left.address, left.distance))

    def apply(self, statement: Apply) -> None:
        self.ranges.note(statement)
        op, out, args = statement.op, statement.out, statement.args
        short = self.all_short(args)
        if op in COMPARISONS and args[0].type == INDEX and short is not None:
            self.out.append(replace(statement, args=short))
        elif out.type == INDEX and fits(self.ranges.of(out)) and self.stays(op, args, short):
            assert short is not None
            value = self.value(NARROW)
            self.out.append(Apply(value, op, short))
            self.short[out.id] = value
            self.is_gone.add(out.id)
        else:
            held = short if op == "cast" and short is not None else tuple(map(self.long, args))
            self.out.append(replace(statement, args=held))

    def stays(self, op: str, args: Sequence[Operand], short: tuple[Operand, ...] | None) -> bool:
        """Does the operation on the short forms give the short form of the result?"""
        if short is None:
            return False
        if op in SHIFTS:
            count = uniform(args[1])
            return count is not None and count < 32
        return op in SAME or (op == "cast" and not args[0].type.dtype.is_float)

    def access(self, statement: Load | Store | Fetch | LoadMatrix | LoadSums) -> None:
        if isinstance(statement, Store):
            statement = replace(statement, value=self.long(statement.value))
        address = self.place(statement.address, statement.distance)
        self.out.append(replace(statement, address=address))

    def place(self, address: Operand, distance: int) -> Operand:
        """An address, in 32 bits where what lies so far behind it has one, too."""
        short = self.short_of(address)
        reach = self.ranges.of(address).plus(Interval(distance, distance))
        return short if short is not None and fits(reach) else self.long(address)

    def loop(self, loop: Loop) -> None:
        start, stop = self.short_of(loop.start), self.short_of(loop.stop)
        self.ranges.enter(loop)
        inits = [self.long(carry.init) for carry in loop.carries]
        index = loop.index
        beyond = self.ranges.of(loop.stop).plus(Interval(loop.step, loop.step))
        if start is not None and stop is not None and fits(beyond):
            index = self.value(NARROW)
            self.short[loop.index.id] = index
            self.is_gone.add(loop.index.id)
        else:
            start, stop = self.long(loop.start), self.long(loop.stop)
        defined = [index] if index is loop.index else []
        body, ends = self.body(loop.body, defined, [carry.next for carry in loop.carries])
        carries = tuple(
            Carry(carry.result, init, carry.inner, last)
            for carry, init, last in zip(loop.carries, inits, ends, strict=True)
        )
        self.out.append(Loop(index, start, stop, loop.step, carries, body))

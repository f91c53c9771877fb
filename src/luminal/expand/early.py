"""Weights asked for before earlier launches have ended.

Where a device may begin with a kernel while the one ahead still runs, the kernel waits for its end
before it touches memory. What no launch writes can be asked for before that: its way to the units'
shared cache is then hidden behind the end of the launch ahead. Each lane fetches what the first
loads of its first chunk will read, whose addresses follow from the chunk's number and the lane's.

A fetch gives no value, so one that comes too early is in vain and not wrong. The loads themselves
stay behind the wait: a value that lay in a register would have to be known to be final, by whatever
wrote it, in this program or in another one that was queued before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from luminal.expand.fold import constant, uniform
from luminal.expand.ir import (
    CONDITION,
    INDEX,
    Apply,
    Constant,
    Copy,
    Fetch,
    If,
    Kernel,
    Load,
    Loop,
    Operand,
    Statement,
    Type,
    Value,
    memory_dtype,
)
from luminal.expand.wide import fresh_values

# With 16 accesses of 8 bytes by 2048 lanes a unit of an H100 has 256 KB under way: more than its
# share of what memory gives while one launch follows another.
MOST = 16  # fetches of a lane on any way through the kernel, but for those of loops side by side
SECTOR = 32  # bytes that memory gives together at least


def with_early(kernel: Kernel) -> Kernel:
    """The kernel with fetches from its constant buffers before all else, where it has such."""
    if not any(buffer.constant for buffer in kernel.buffers):
        return kernel
    return _Early(kernel).kernel()


class _Early:
    """Follows the first chunk of a worker as far as integers alone lead.

    `known` are the values of the kernel as they are there; what is `made` by an operation becomes
    known when it is asked for.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.source = kernel
        self.fresh = fresh_values(kernel)
        self.first = self.value(INDEX)
        self.sizes = {b.name: memory_dtype(b.dtype).size for b in kernel.buffers if b.constant}
        same = [*(param.value for param in kernel.params), kernel.lane]
        self.known: dict[int, Operand] = {value.id: value for value in same if value is not None}
        self.known[kernel.chunk.id] = self.first
        if kernel.begin is not None:
            self.known[kernel.begin.id] = self.first
        self.made: dict[int, Apply] = {}
        self.asked: set[tuple[str, Operand, int]] = set()
        self.written: list[Statement] = []
        self.left = MOST

    def kernel(self) -> Kernel:
        self.walk(self.source.setup)
        self.walk(self.source.body)
        if not any(isinstance(statement, Fetch | If) for statement in self.written):
            return self.source
        return replace(self.source, first=self.first, early=tuple(self.written))

    def value(self, type_: Type) -> Value:
        return Value(next(self.fresh), type_)

    def walk(self, body: Sequence[Statement]) -> None:
        for statement in body:
            match statement:
                case Apply(out):
                    self.made[out.id] = statement
                case Load(out, buffer, address, mask, distance) if address.type.lanes == 1:
                    self.ask(buffer, address, distance, mask, out.type.dtype.size)
                case Copy():
                    place = statement.source_address, statement.source_distance
                    self.ask(statement.source, *place, statement.live)
                case If(condition):
                    self.where(condition, partial(self.walk, statement.body))
                case Loop():
                    self.loop(statement)

    def loop(self, loop: Loop) -> None:
        """The first trips: as many as fetches are left for where their number is known, else one,
        if there is one.
        """
        start, stop = uniform(loop.start), uniform(loop.stop)
        if start is not None and stop is not None:
            for number in range(int(start), int(stop), loop.step):
                if self.left > 0:
                    self.trip(loop, constant(loop.index.type, number), number == start)
            return
        begun, end = self.operand(loop.start), self.operand(loop.stop)
        if begun is not None and end is not None:
            runs = self.apply(CONDITION, "lt", (begun, end))
            self.known[runs.id] = runs
            self.where(runs, lambda: self.trip(loop, begun, True))

    def trip(self, loop: Loop, index: Operand, is_first: bool) -> None:
        outer = dict(self.known), set(self.asked)
        self.known[loop.index.id] = index
        for carry in loop.carries:
            init = self.operand(carry.init) if is_first else None
            if init is not None:
                self.known[carry.inner.id] = init
        self.walk(loop.body)
        self.known, self.asked = outer

    def where(self, condition: Operand, write: Callable[[], None]) -> None:
        """What is written where a scalar holds, if it is known by then and anything is fetched."""
        holds = self.operand(condition)
        if holds is None:
            return
        outer = self.known, self.asked, self.written, self.left
        self.known, self.asked, self.written = dict(self.known), set(self.asked), []
        write()
        inside = tuple(self.written)
        self.known, self.asked, self.written, self.left = outer
        if any(isinstance(statement, Fetch | If) for statement in inside):
            self.written.append(If(holds, (), inside))

    def ask(
        self, buffer: str, address: Operand, distance: int, mask: Operand | None, size: int = 0
    ) -> None:
        """Fetches what an access touches, unless that is known or too much; its address counts
        words of so many bytes, else elements.
        """
        if buffer not in self.sizes or self.left <= 0:
            return
        place = self.operand(address)
        if place is None:
            return
        elements = max(1, size // self.sizes[buffer])
        distance *= elements
        key = buffer, place, distance * self.sizes[buffer] // SECTOR
        if key in self.asked:
            return
        if elements > 1:
            place = self.apply(place.type, "mul", (place, constant(place.type, elements)))
        fetch = Fetch(buffer, place, distance)
        if mask is None:
            self.written.append(fetch)
        else:
            self.where(self.scalar(mask), lambda: self.written.append(fetch))
        self.asked.add(key)
        self.left -= 1

    def scalar(self, mask: Operand) -> Operand:
        """The mask of one element of an access, where all have the same one."""
        spread = self.made.get(mask.id) if isinstance(mask, Value) else None
        return spread.args[0] if spread is not None and spread.op == "splat" else mask

    def operand(self, operand: Operand) -> Operand | None:
        """What is known of an operand before the kernel begins; None: nothing."""
        if isinstance(operand, Constant):
            return operand
        if operand.id not in self.known:
            statement = self.made.get(operand.id)
            if statement is None:
                return None
            args = [self.operand(arg) for arg in statement.args]
            if any(arg is None for arg in args):
                return None
            there = tuple(arg for arg in args if arg is not None)
            self.known[operand.id] = self.apply(operand.type, statement.op, there)
        return self.known[operand.id]

    def apply(self, type_: Type, op: str, args: tuple[Operand, ...]) -> Value:
        out = self.value(type_)
        self.written.append(Apply(out, op, args))
        return out

"""The lanes of a group as the interpreter runs them: each by itself from barrier to barrier.

Between two barriers lanes run in any order, so no lane may touch what another one writes there; and
all lanes must come to the same barrier, the same number of times. So must they to an exchange, or
to what they multiply or load together, but these order no memory.

Products of factors that stay in shared memory are made where they are awaited, and no sooner. But
they may be made at once: so from where they are asked for on nothing may write what they read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from luminal.base.errors import VerifyError
from luminal.base.fragments import dealt, fragment, gathered
from luminal.base.records import dataclass
from luminal.base.swizzles import PIECE, SWIZZLES
from luminal.expand.ir import (
    Accumulate,
    Barrier,
    Copy,
    CopyBox,
    Exchange,
    Left,
    Load,
    LoadMatrix,
    LoadSums,
    Meeting,
    Multiply,
    MultiplyLeft,
    Statement,
    Store,
    memory_dtype,
)
from luminal.expand.text import headline
from luminal.kernel.tile_ir import Buffer

Array = NDArray[Any]
Element = tuple[str, int]
"""An element of a buffer."""
PRODUCTS, BOX = -1, -2  # stand for the lane of what reads, or comes, by itself
WHO = {PRODUCTS: "a product", BOX: "a box"}
ROW = 32
"""Lanes that load matrices together."""
Lane = Generator[tuple[Meeting, Any], Any, None]
"""What a lane does from one meeting to the next: it brings a value to an exchange, and is sent
another lane's; brings its part of blocks, and is sent that of their product; or brings an address,
and is sent those of its row.
"""


@dataclass
class Coming:
    """Elements that a box brings, in so many bytes, once; and the lanes that have awaited it."""

    elements: Array
    bytes: int
    make: Callable[[], None]
    heard: set[int] = field(default_factory=set)


# Boxes come when somebody waits for them, and no sooner; but they may come at once.
@dataclass
class Barriers:
    """The phases of a group's barriers: how many have ended, and what the present one waits for."""

    ended: dict[Element, int] = field(default_factory=dict)
    expected: dict[Element, int] = field(default_factory=dict)
    coming: dict[Element, list[tuple[CopyBox, Coming]]] = field(default_factory=dict)
    came: dict[Element, list[tuple[CopyBox, Coming]]] = field(default_factory=dict)
    hidden: dict[Element, int] = field(default_factory=dict)  # by a lane that has not published

    def begin(self, barrier: Element, lane: int) -> None:
        """The first phase begins."""
        self.ended[barrier] = 0
        self.hidden[barrier] = lane

    def publish(self, lane: int) -> None:
        """Devices see the barriers that a lane has begun."""
        self.hidden = {barrier: n for barrier, n in self.hidden.items() if n != lane}

    def end(self, statement: Statement, barrier: Element) -> None:
        """There are no more phases."""
        if barrier in self.expected or self.coming.get(barrier):
            self._fail(statement, "boxes are on their way; await them before")
        self.ended.pop(barrier, None)

    def free(self, statement: Statement, barrier: Element) -> None:
        """The present phase ends: a group stands for all of its cluster."""
        self.ended[barrier] = self._begun(statement, barrier) + 1

    def expect(self, statement: Statement, barrier: Element, count: int) -> None:
        """The present phase ends when so many bytes have come."""
        self._begun(statement, barrier)
        if barrier in self.expected:
            self._fail(statement, "its phase has not ended; await it before")
        self.expected[barrier] = count

    def send(self, statement: CopyBox, barrier: Element, box: Coming) -> None:
        """A box is on its way."""
        self._begun(statement, barrier)
        if barrier in self.hidden:
            self._fail(statement, "no device sees its barrier; put a Publish behind its begin")
        self.coming.setdefault(barrier, []).append((statement, box))

    def wait(self, statement: Statement, barrier: Element, parity: int, lane: int) -> None:
        """Ends the present phase if it has this parity; the lane knows of the last one then."""
        if self._begun(statement, barrier) % 2 == parity:
            boxes = self.coming.pop(barrier, [])
            count, expected = sum(box.bytes for _, box in boxes), self.expected.pop(barrier, None)
            if expected != count:
                self._fail(statement, f"{expected} bytes are expected, and {count} come: it hangs")
            for _, box in boxes:
                box.make()
            self.came[barrier] = boxes
            self.ended[barrier] += 1
        for _, box in self.came.get(barrier, ()):
            box.heard.add(lane)

    def check(self, reader: Statement, buffer: str, elements: Array, lanes: range) -> None:
        """All the lanes have awaited what is read."""
        for some in (*self.coming.values(), *self.came.values()):
            for statement, box in some:
                heard = box.heard.issuperset(lanes)
                if (
                    statement.buffer == buffer
                    and not heard
                    and np.isin(elements, box.elements).any()
                ):
                    self._fail(reader, f"it reads what {headline(statement)} brings; await that")

    def _begun(self, statement: Statement, barrier: Element) -> int:
        if barrier not in self.ended:
            self._fail(statement, "its barrier has not begun")
        return self.ended[barrier]

    def _fail(self, statement: Statement, text: str) -> NoReturn:
        raise VerifyError(f"expanded IR: `{headline(statement)}`: {text}")


@dataclass
class Accesses:
    """Who touched what since the last barrier, by element: the lanes, and the statement of one."""

    written: dict[Element, tuple[int, Statement]] = field(default_factory=dict)
    read: dict[Element, tuple[int, Statement]] = field(default_factory=dict)
    read_by_more: set[Element] = field(default_factory=set)
    running: list[Running] = field(default_factory=list)
    hidden: dict[int, set[Element]] = field(default_factory=dict)  # what lanes have not published

    barriers: Barriers = field(default_factory=Barriers)

    def note(
        self,
        lane: int,
        statement: Load
        | Store
        | LoadMatrix
        | Copy
        | CopyBox
        | MultiplyLeft
        | Accumulate
        | LoadSums,
        addresses: Iterable[int],
        buffer: str = "",
    ) -> None:
        """Raises VerifyError where another lane wrote there, or read what this one writes."""
        writes = _writes(statement, buffer)
        for address in addresses:
            element = (buffer or statement.buffer, int(address))  # type: ignore[union-attr]
            if isinstance(statement, Store | Copy | CopyBox | LoadSums):
                self._idle(statement, element)
            self._compare(lane, statement, element, self.written.get(element))
            if writes:
                other = self.read.get(element)
                if element in self.read_by_more and other is not None and other[0] == lane:
                    other = (lane + 1, other[1])  # any of the others
                self._compare(lane, statement, element, other)
                self.written[element] = lane, statement
            elif self.read.setdefault(element, (lane, statement))[0] != lane:
                self.read_by_more.add(element)

    def _idle(self, statement: Store | Copy | CopyBox | LoadSums, element: Element) -> None:
        """Nothing that is running may read what is written, or write what is read."""
        user = next((x for x in self.running if element[1] in x.used.get(element[0], ())), None)
        if user is not None:
            does = "written" if isinstance(statement, LoadSums) else "read"
            raise VerifyError(
                f"expanded IR: `{headline(statement)}`: {element[0]}[{element[1]}] is {does} by "
                f"`{headline(user.statement)}`, which is running; await it before"
            )

    def _compare(
        self,
        lane: int,
        statement: Statement,
        element: Element,
        other: tuple[int, Statement] | None,
    ) -> None:
        if other is not None and other[0] != lane:
            does, did = (
                "writes" if _writes(access, element[0]) else "reads"
                for access in (statement, other[1])
            )
            buffer, address = element
            who, whom = (WHO.get(n, f"lane {n}") for n in (lane, other[0]))
            raise VerifyError(
                f"expanded IR: `{headline(statement)}`: {who} {does} {buffer}[{address}], "
                f"which {whom} {did} in `{headline(other[1])}`; put a barrier between them"
            )

    def clear(self) -> None:
        """A barrier: what was before it, is done."""
        self.written.clear()
        self.read.clear()
        self.read_by_more.clear()


def _writes(statement: Statement, buffer: str) -> bool:
    """Does a statement write what it touches of a buffer?"""
    if isinstance(statement, Accumulate):
        return statement.buffer == buffer
    return isinstance(statement, Store | Copy | CopyBox)


GARBAGE = 0x7FA5A5A5  # what has not been added up; of floats no number


@dataclass(eq=False)
class Running:
    """A product under way: what it reads, and where each lane has what it gives, which is garbage
    until it is made; or the memory of its results, which of it they are, and whether it adds.
    """

    statement: MultiplyLeft | Accumulate
    accesses: Accesses
    factors: Sequence[tuple[Array, Array]]  # memory, and the elements of a block in it
    # By lane: results, what is added to, and what it has of the first factor.
    lanes: Sequence[tuple[Array, Sequence[Array], Sequence[Array]]]
    sums: tuple[Array, Array, bool] | None = None
    first: int = 0  # of the lanes
    is_made: bool = False

    @property
    def used(self) -> Mapping[str, Array]:
        """The elements that nobody else may touch, by buffer."""
        if self.sums is None or not isinstance(self.statement, Accumulate):
            return self.read
        return {**self.read, self.statement.buffer: self.sums[1].ravel()}

    @property
    def read(self) -> Mapping[str, Array]:
        """The elements that it reads, by buffer."""
        read: dict[str, Array] = {}
        left = self.statement.left
        if isinstance(self.statement, Accumulate):
            left = *left, *self.statement.scales
        for factor, (_, elements) in zip(left, self.factors, strict=True):
            before = read.get(factor.buffer, np.zeros(0, np.int64))
            read[factor.buffer] = np.concatenate((before, elements.ravel()))
        return read

    def note(self) -> None:
        """Reads what is there now, which is what lanes have published."""
        lanes = range(self.first, self.first + len(self.lanes))
        for name, elements in self.used.items():
            self.accesses.barriers.check(self.statement, name, elements, lanes)
            self.accesses.note(PRODUCTS, self.statement, elements, name)
            for lane, hidden in self.accesses.hidden.items():
                if any((name, int(element)) in hidden for element in elements if hidden):
                    raise VerifyError(
                        f"expanded IR: `{headline(self.statement)}`: lane {lane} has written what "
                        "it reads; put a Publish before the Barrier"
                    )

    def make(self) -> None:
        """Adds the product up, once."""
        if self.is_made:
            return
        self.is_made = True
        self.accesses.running.remove(self)
        self.note()
        dot = self.statement.dot
        count = len(self.statement.left)
        *left, b = (memory[elements] for memory, elements in self.factors[:count])
        a = left[0] if left else self.held()
        a, b = a.view(dot.a.numpy), b.view(dot.b.numpy)
        if self.sums is not None:
            into, elements, adds = self.sums
            before = into[elements] if adds else np.zeros_like(into[elements])
            scales = [
                np.repeat(memory[places], dot.block, 1) for memory, places in self.factors[count:]
            ]
            both = (scales[0], scales[1]) if scales else None
            into[elements] = dot.of_blocks(before, a, b.T, both)
            return
        held = np.array([np.concatenate([*acc]) for _, acc, _ in self.lanes])
        sides = {"m": dot.m, "n": dot.n}
        acc = gathered(held, dot.fragment("c"), sides, dot.accumulator.numpy)
        results = dealt(dot.of_blocks(acc, a, b.T), dot.fragment("c"), "mn")
        for (outs, *_), row in zip(self.lanes, results, strict=True):
            outs[:] = row

    def held(self) -> Array:
        """The first factor as lanes have it."""
        dot = self.statement.dot
        words = np.array([np.concatenate([*held]) for *_, held in self.lanes])
        whole = fragment(dot.fragments[0])
        return gathered(words, whole, {"m": dot.m, "k": dot.k}, dot.a.numpy)


def elements_of(factor: Left, buffer: Buffer, start: int, sides: tuple[int, int]) -> Array:
    """Where the elements of a block of a factor lie, by rows or columns and steps of the sum."""
    swizzle, size = SWIZZLES[buffer.swizzle], memory_dtype(buffer.dtype).size
    width = swizzle.width // size
    lines, along = np.meshgrid(*map(np.arange, sides[:: -1 if factor.turned else 1]), indexing="ij")
    straight = start + along // width * factor.apart + lines * width + along % width
    moved: Array = straight ^ (straight >> 3 & (swizzle.width - PIECE) // size)
    return moved.T if factor.turned else moved


def in_turns(lanes: Sequence[Lane], accesses: Accesses) -> None:
    """Runs lanes to their ends, all from one meeting to the next."""
    brought = [next(lane, None) for lane in lanes]
    while (first := brought[0]) is not None:
        meeting = first[0]
        for number, stop in enumerate(brought):
            if stop is None or stop[0] is not meeting:
                raise _missed(number)
        sent = [stop[1] for stop in brought if stop is not None]
        match meeting:
            case Exchange(_, _, distance):
                sent = [sent[number ^ distance] for number in range(len(sent))]
            case Multiply():
                sent = _multiplied(meeting, sent)
            case MultiplyLeft() | Accumulate():
                sent = _begun(meeting, sent, accesses)
            case LoadMatrix():
                sent = [sent[number - number % ROW :][:ROW] for number in range(len(sent))]
            case Barrier():
                accesses.clear()
        brought = [_resumed(*stop) for stop in zip(lanes, sent, strict=True)]
    late = next((number for number, stop in enumerate(brought) if stop is not None), None)
    if late is not None:
        raise _missed(late)


def _multiplied(meeting: Multiply, brought: Sequence[Any]) -> list[Any]:
    """The results that each lane holds, of the (results, factors) that each brings."""
    dot, rows = meeting.dot, []
    for first in range(0, len(brought), dot.together):
        together = brought[first : first + dot.together]
        blocks = [np.array([held[n] for held in together]) for n in range(len(together[0]))]
        acc, a, b, *scales = blocks
        rows += [*dot.of_lanes(acc, a, b, (scales[0], scales[1]) if scales else None)]
    return rows


def _begun(
    meeting: MultiplyLeft | Accumulate, brought: Sequence[Any], accesses: Accesses
) -> list[Running]:
    """The product that each lane waits for, of the (results, sums, registers, places of factors)
    that each brings.
    """
    sent: list[Running] = []
    for first in range(0, len(brought), meeting.dot.together):
        together = brought[first : first + meeting.dot.together]
        held, sums = [(outs, acc, words) for outs, acc, words, _ in together], None
        if isinstance(meeting, Accumulate):
            held, sums = [], held[0][0]
        product = Running(meeting, accesses, together[0][3], held, sums, first)
        accesses.running.append(product)
        product.note()
        sent += [product] * len(together)
    return sent


def _resumed(lane: Lane, sent: Any) -> tuple[Meeting, Any] | None:
    """The meeting that a lane comes to next, and what it brings there; None where it runs to its
    end.
    """
    try:
        return lane.send(sent)
    except StopIteration:
        return None


def _missed(number: int) -> VerifyError:
    return VerifyError(
        f"expanded IR: lanes 0 and {number} do not meet at one barrier or exchange; put it where "
        "all come by"
    )

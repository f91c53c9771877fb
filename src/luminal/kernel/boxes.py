"""Boxes: blocks of an operand that a device copies into shared memory by itself.

One lane asks for all that a step needs, and goes on. Each block of a ring has a barrier in shared
memory whose phases count the bytes that come: one ends when all are there that its Send expects,
and whoever has awaited that phase may have them read. Phases take turns, so a wait names the
parity of the one that it is for; of barriers that have just begun that is 0.

    begin phases; barrier
    for step: send(step, turn) where turn = step % ring; ...
              await phase(turn, step // ring % 2); ...
    barrier; end phases

Groups of a *cluster*, which are neighbours on the device, may want the same box: each brings as
many lines of it to all of them. What one of them copies over others must have read, so a block of
the ring has another barrier in each group, its room, whose phase ends when all groups have freed
the block; and before the first box and after the last one all of them meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.base.errors import VerifyError
from luminal.base.records import dataclass
from luminal.base.swizzles import PERIOD, SWIZZLES
from luminal.memory.alignment import ACCESS
from luminal.shape.expression import TRUE, Expression

Array = NDArray[Any]

MOST_DIMENSIONS = 5
MOST_SIDE = 256  # elements of a box along a dimension
MOST_EXTENT, MOST_STRIDE = 1 << 32, 1 << 40  # elements of a dimension; bytes between neighbours


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand as boxes are cut out of it: by dimension, the one first whose neighbours lie side
    by side, its extent, its stride and a box's side, all in elements of `size` bytes. What is
    outside of an extent is 0. Lines of a box have pieces that change places as in a `swizzle`.
    """

    source: str
    size: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @property
    def bytes(self) -> int:
        """The bytes of a box, of which none is left out."""
        return self.size * prod(self.box)

    @property
    def refusal(self) -> str | None:
        """Why no device can be told of it; None where it can."""
        steps = [stride * self.size for stride in self.strides[1:]]
        line, lines = self.box[0] * self.size, self.bytes // (self.box[0] * self.size)
        if len(self.extents) > MOST_DIMENSIONS:
            return f"it has {len(self.extents)} dimensions, of which {MOST_DIMENSIONS} may be"
        if self.strides[0] != 1 or any(step % ACCESS or step >= MOST_STRIDE for step in steps):
            return f"strides of {steps} bytes are not all multiples of {ACCESS}"
        if not all(0 < extent <= MOST_EXTENT for extent in self.extents):
            return f"extents of {self.extents} elements are none, or too many"
        if max(self.box) > MOST_SIDE:
            return f"a box has sides of {self.box}, of which {MOST_SIDE} elements may be"
        if self.swizzle not in SWIZZLES or line != self.swizzle or lines % PERIOD:
            return f"{lines} lines of {line} bytes are no tile of a swizzle"
        return None

    def __str__(self) -> str:
        sides = zip(self.extents, self.strides, self.box, strict=True)
        cut = ", ".join(f"{side} of {extent} by {stride}" for extent, stride, side in sides)
        return f"{self.source} ({cut})"


@dataclass(frozen=True, slots=True)
class Box:
    """The box of `tensor` from `origin` on, a position in each dimension, goes to `buffer` from
    `offset` on: where that is before pieces change places. Of `parts` boxes, the next one where the
    lines of this one end, each group of a cluster brings one to all of them.
    """

    buffer: str
    offset: Expression
    tensor: Tensor
    origin: tuple[Expression, ...]
    parts: int = 1

    @property
    def bytes(self) -> int:
        """The bytes that come to a group."""
        return self.parts * self.tensor.bytes


@dataclass(frozen=True, slots=True)
class Phases:
    """The barriers of a shared buffer begin, each in a phase of parity 0, or end: nobody may use
    them then before a Barrier, or still be using them. Those of rooms are for so many `groups`.
    """

    buffer: str
    is_end: bool = False
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Free:
    """Where `guard` holds the group has read the block of the room `turn`, and tells all groups of
    its cluster, of which each ends the present phase when it has heard of all.
    """

    rooms: str
    turn: Expression
    guard: Expression = TRUE


@dataclass(frozen=True, slots=True)
class AwaitPhase:
    """Waits for the end of the phase of this parity of the barrier `turn`."""

    phases: str
    turn: Expression
    parity: Expression


@dataclass(frozen=True, slots=True)
class Send:
    """Asks for boxes, where `guard` holds: the present phase of the barrier `turn` ends when all
    of them are there. Who asks waits for a `room` before.
    """

    phases: str
    turn: Expression
    boxes: tuple[Box, ...]
    guard: Expression = TRUE
    room: AwaitPhase | None = None


SQUARE = 128, 4
"""Rows, or columns, by steps of scales that are brought to tensor memory at once."""
SCALES_OF_COLUMN = 32 * 4
"""Lanes by bytes of a column there: each quarter of the lanes has the same scales."""


@dataclass(frozen=True, slots=True)
class Lift:
    """So many squares of scales of a shared buffer, from `offset` on, that tensor memory takes
    as well, before products that are begun read them there.
    """

    buffer: str
    offset: Expression
    squares: int


@dataclass(frozen=True, slots=True)
class Begin:
    """A batch of products begins: of dots that read their factors in shared memory, which what was
    written before a Barrier is ready for. What they add up is not there before an Await, and what
    they read may not be written until then. `lifts` are the scales of those in tensor memory.
    """

    lifts: tuple[Lift, ...] = ()


BoxStatement = Phases | Free | Send | AwaitPhase


def bring(source: Array, memory: Array, box: Box, offset: int, origin: Sequence[int]) -> None:
    """The meaning of a Box: its elements of `source` come to `memory`, before pieces change places;
    0 where they are outside of the tensor.
    """
    size = prod(box.tensor.box)
    for part in range(box.parts):
        start, at = offset + part * size, part_origin(origin, box.tensor, part)
        memory[start : start + size] = cut_out(source, box.tensor, at).ravel()


def part_origin(origin: Sequence[int], tensor: Tensor, part: int) -> list[int]:
    """Where the part of a number of what groups share begins."""
    first, line, *others = origin
    return [first, line + part * tensor.box[1], *others]


def cut_out(source: Array, tensor: Tensor, origin: Sequence[int]) -> Array:
    """The elements of a box, its lines one after the other. Raises VerifyError where the tensor is
    more than the source.
    """
    place = np.zeros(tensor.box[::-1], np.int64)
    inside = np.ones(tensor.box[::-1], np.bool_)
    for n, (first, side) in enumerate(zip(origin, tensor.box, strict=True)):
        at = (first + np.arange(side)).reshape(side, *[1] * n)
        inside &= (at >= 0) & (at < tensor.extents[n])
        place = place + at * tensor.strides[n]
    if (place[inside] >= source.size).any():
        raise VerifyError(f"{tensor}: a box at {origin} is not in {source.size} elements")
    elements: Array = np.where(inside, source[np.where(inside, place, 0)], source.dtype.type(0))
    return elements


def text_of(statement: BoxStatement) -> str:
    """The statement's line in tile IR's text."""
    match statement:
        case Phases(buffer, is_end, groups):
            of = f" of {groups} groups" if groups > 1 else ""
            return f"{'end' if is_end else 'begin'} phases {buffer}{of}"
        case Free(rooms, turn, guard):
            return f"free {rooms}[{turn}]{_where(guard)}"
        case AwaitPhase(phases, turn, parity):
            return f"await {phases}[{turn}] of parity {parity}"
        case Send(phases, turn, boxes, guard, room):
            behind = "" if room is None else f" behind {room.phases}[{room.turn}], {room.parity}"
            return f"send {_boxes(boxes)} by {phases}[{turn}]{behind}{_where(guard)}"


def _where(guard: Expression) -> str:
    return "" if guard is TRUE else f" if {guard}"


def _boxes(boxes: Sequence[Box]) -> str:
    return ", ".join(
        f"{f'{box.parts} parts of ' if box.parts > 1 else ''}{box.buffer}[{box.offset}] from "
        f"{box.tensor} at ({', '.join(map(str, box.origin))})"
        for box in boxes
    )

"""Boxes: one lane of a group asks the device for them, and all await them at a barrier's phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from luminal.expand.fold import constant
from luminal.expand.ir import CONDITION, INDEX, AtPhase, CopyBox, Operand, Phase, Publish
from luminal.expand.tiles import Tiles
from luminal.kernel.boxes import AwaitPhase, Free, Phases, Send
from luminal.shape.expression import TRUE, Expression


def phases(tiles: Tiles, statement: Phases) -> None:
    """The barriers, one by one, by the first lane."""
    step = Phase.END if statement.is_end else Phase.BEGIN
    count = tiles.buffers[statement.buffer].size.constant
    groups = constant(INDEX, statement.groups)

    def write() -> None:
        for number in range(count):
            tiles.b.emit(AtPhase(step, statement.buffer, constant(INDEX, number), groups))
        if not statement.is_end:
            tiles.b.emit(Publish())

    tiles.b.where(_first(tiles), write)


def free(tiles: Tiles, statement: Free) -> None:
    """The first lane says so, for all that have met."""
    turn = tiles.index.scalar(statement.turn)
    where = _asks(tiles, statement.guard)
    tiles.b.where(where, lambda: tiles.b.emit(AtPhase(Phase.FREE, statement.rooms, turn)))


def send(tiles: Tiles, statement: Send) -> None:
    """The first lane says how many bytes come, and asks for them."""
    b, index = tiles.b, tiles.index
    turn, room = index.scalar(statement.turn), statement.room

    def write() -> None:
        if room is not None:
            at, parity = map(index.scalar, (room.turn, room.parity))
            b.emit(AtPhase(Phase.ENTER, room.phases, at, parity))
        size = sum(box.bytes for box in statement.boxes)
        b.emit(AtPhase(Phase.EXPECT, statement.phases, turn, constant(INDEX, size)))
        for box in statement.boxes:
            place = tiles.place(box.buffer, box.offset, 0)
            origin = tuple(map(index.scalar, box.origin))
            by = statement.phases
            b.emit(CopyBox(box.buffer, *place, box.tensor, origin, by, turn, box.parts))

    b.where(_asks(tiles, statement.guard), write)


def wait(tiles: Tiles, statement: AwaitPhase) -> None:
    """All lanes wait for the phase's end."""
    turn, parity = map(tiles.index.scalar, (statement.turn, statement.parity))
    tiles.b.emit(AtPhase(Phase.AWAIT, statement.phases, turn, parity))


def _asks(tiles: Tiles, guard: Expression) -> Operand:
    """Is the lane the first of its group, and does the guard hold?"""
    first = _first(tiles)
    if guard is TRUE:
        return first
    return tiles.b.op("and", first, tiles.index.condition(guard))


def _first(tiles: Tiles) -> Operand:
    """Is the lane the first of its group?"""
    first = tiles.is_first(())
    return constant(CONDITION, True) if first is None else first


RULES: Mapping[type, Callable[[Tiles, Any], None]] = {
    Phases: phases,
    Free: free,
    Send: send,
    AwaitPhase: wait,
}

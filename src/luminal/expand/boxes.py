"""Boxes: one lane of a group asks the device for them, and all await them at a barrier's phase."""

from __future__ import annotations

from luminal.expand.fold import constant
from luminal.expand.ir import CONDITION, INDEX, AtPhase, CopyBox, Operand, Phase, Publish
from luminal.expand.tiles import Tiles
from luminal.kernel.boxes import AwaitPhase, Phases, Send
from luminal.shape.expression import TRUE


def phases(tiles: Tiles, statement: Phases) -> None:
    """The barriers, one by one, by the first lane."""
    step = Phase.END if statement.is_end else Phase.BEGIN
    count = tiles.buffers[statement.buffer].size.constant

    def write() -> None:
        for number in range(count):
            tiles.b.emit(AtPhase(step, statement.buffer, constant(INDEX, number)))
        if not statement.is_end:
            tiles.b.emit(Publish())

    tiles.b.where(_first(tiles), write)


def send(tiles: Tiles, statement: Send) -> None:
    """The first lane says how many bytes come, and asks for them."""
    b, index = tiles.b, tiles.index
    turn = index.scalar(statement.turn)
    asks = _first(tiles)
    if statement.guard is not TRUE:
        asks = b.op("and", asks, index.condition(statement.guard))

    def write() -> None:
        size = sum(box.tensor.bytes for box in statement.boxes)
        b.emit(AtPhase(Phase.EXPECT, statement.phases, turn, constant(INDEX, size)))
        for box in statement.boxes:
            place = tiles.place(box.buffer, box.offset, 0)
            origin = tuple(map(index.scalar, box.origin))
            b.emit(CopyBox(box.buffer, *place, box.tensor, origin, statement.phases, turn))

    b.where(asks, write)


def wait(tiles: Tiles, statement: AwaitPhase) -> None:
    """All lanes wait for the phase's end."""
    turn, parity = map(tiles.index.scalar, (statement.turn, statement.parity))
    tiles.b.emit(AtPhase(Phase.AWAIT, statement.phases, turn, parity))


def _first(tiles: Tiles) -> Operand:
    """Is the lane the first of its group?"""
    first = tiles.is_first(())
    return constant(CONDITION, True) if first is None else first

"""Accesses whose elements lie otherwise than in the order of lanes: whole vectors, shuffled.

Lanes that walk backwards are turned round. Of lanes a few elements apart the blocks that they lie
in are read. A tile that lies along one axis and is used along another is transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from luminal.expand.builder import Builder
from luminal.expand.fold import constant
from luminal.expand.ir import CONDITION, Operand
from luminal.expand.tiles import Elements, Position, Tiles
from luminal.kernel.loops import SHORT_STEP
from luminal.kernel.tile_ir import Load, Store
from luminal.shape.expression import ONE, Expression, Symbol

BLOCK = 16  # bytes: registers are made of such, within which shuffles cost least

Read = Callable[[int, Operand | None], Operand]
"""The elements from so many beyond a place on, in the lanes where a mask holds."""


def backwards(b: Builder, read: Read, mask: Operand | None, n: int) -> Operand:
    """Lanes that walk backwards from a place."""
    turned = range(n - 1, -1, -1)
    mask = None if mask is None else b.shuffle(mask, mask, turned)
    value = read(1 - n, mask)
    return b.shuffle(value, value, turned)


def strided(b: Builder, read: Read, mask: Operand | None, count: int, step: int) -> Operand:
    """Lanes `step` elements apart: of each block only what a lane wants is read, and kept."""
    mask = b.spread(constant(CONDITION, True), count) if mask is None else mask
    none = b.spread(constant(CONDITION, False), count)
    gathered: Operand | None = None
    for block in range(-(-((count - 1) * step + 1) // count)):
        places = [divmod(block * count + k, step) for k in range(count)]  # (lane, beside it)
        wanted = b.shuffle(mask, none, [count if beside else lane for lane, beside in places])
        part = read(block * count, wanted)
        is_own = [lane * step // count == block for lane in range(count)]
        lanes = [count + k * step % count if mine else k for k, mine in enumerate(is_own)]
        gathered = b.shuffle(part if gathered is None else gathered, part, lanes)
    assert gathered is not None
    return gathered


def _across(tiles: Tiles, statement: Load | Store, axes: Sequence[Symbol]) -> Iterator[Symbol]:
    """The axes with pieces of single elements, along which memory is contiguous while it jumps from
    lane to lane.
    """
    offset, wide = statement.offset, tiles.wide_axis(axes)
    if wide is None or any(tile.axes for _, tile in statement.indices):
        return
    if not tiles.live.keys().isdisjoint(axes) or not statement.guard.symbols().isdisjoint(axes):
        return
    jumps = offset.coefficient(wide)
    if jumps is None or (jumps.is_const and abs(jumps.value) <= SHORT_STEP):
        return
    for axis in axes:
        if tiles.pieces[axis].size == tiles.pieces[axis].number and offset.coefficient(axis) is ONE:
            yield axis


def transposable(tiles: Tiles, statement: Load, axes: Sequence[Symbol]) -> Symbol | None:
    """Such an axis with at least half as many pieces as there are lanes, all in one vector, and no
    more: the tile is loaded along it and transposed.
    """
    wide = tiles.wide_axis(axes)
    if wide is None or tiles.pieces[wide].number > 1:
        return None
    width = tiles.pieces[wide].width
    fitting = range(-(-width // 2), width + 1)
    return next(
        (a for a in _across(tiles, statement, axes) if tiles.pieces[a].number in fitting), None
    )


def transposed(
    tiles: Tiles,
    statement: Load,
    axes: Sequence[Symbol],
    across: Symbol,
    read: Callable[[Expression, int], Operand],
) -> Elements:
    """The tile of such a load, by vectors along `across`, which are read at offsets and distances
    from these.
    """
    wide = tiles.wide_axis(axes)
    assert wide is not None
    elements: Elements = {}
    for _, position in tiles.positions([axis for axis in axes if axis is not across]):
        rows = []
        for lane in range(tiles.pieces[wide].width):
            offset = statement.offset.substitute({wide: wide + lane} if lane else {})
            rows.append(read(*tiles.reach(offset, {**position, across: 0})))
        columns = turned(tiles.b, rows)[: tiles.pieces[across].number]
        for k, value in enumerate(columns):
            elements[tuple({**position, across: k}[axis] for axis in axes)] = value
    return elements


def turnable(tiles: Tiles, statement: Store, axes: Sequence[Symbol]) -> Symbol | None:
    """Such an axis with several pieces: the tile is stored along it, a block of lanes at a time."""
    if statement.add:
        return None
    return next((a for a in _across(tiles, statement, axes) if tiles.pieces[a].number > 1), None)


def stored_turned(
    tiles: Tiles,
    statement: Store,
    axes: Sequence[Symbol],
    across: Symbol,
    element: Callable[[Position], Operand],
    write: Callable[[Expression, int, Operand], None],
) -> None:
    """The tile of such a store, in squares of a block. Where the last one is not full it begins
    early, and what it shares with the one before is stored twice.
    """
    wide = tiles.wide_axis(axes)
    assert wide is not None
    lanes, number = tiles.pieces[wide].width, tiles.pieces[across].number
    most = max(2, BLOCK // statement.value.dtype.size)
    size = 1 << (min(most, number, lanes).bit_length() - 1)
    for _, position in tiles.positions([axis for axis in axes if axis is not across]):
        for start in (*range(0, number - size, size), number - size):
            there = {**position, across: start}
            rows = [element({**there, across: start + k}) for k in range(size)]
            for k, columns in enumerate(_zipped(tiles.b, rows, 1, size)):
                for first in range(0, lanes, size):
                    column = tiles.b.shuffle(columns, columns, range(first, first + size))
                    offset = statement.offset.substitute({wide: wide + (first + k)})
                    write(*tiles.reach(offset, there), column)


def turned(b: Builder, rows: list[Operand]) -> list[Operand]:
    """The columns of as many vectors as lanes, a power of two: squares of a block of lanes by
    zipping rows, then blocks change places. No shuffle needs a register that says how: such
    constants, kept throughout a kernel, are missed by the sums in its inner loop.
    """
    size = max(1, BLOCK // rows[0].type.dtype.size)
    size = min(size, len(rows))
    squares = [_zipped(b, rows[k : k + size], 1, size) for k in range(0, len(rows), size)]
    blocks = [_gathered(b, list(same), size) for same in zip(*squares, strict=True)]
    return [column for same in zip(*blocks, strict=True) for column in same]


def _zipped(b: Builder, rows: Sequence[Operand], unit: int, size: int) -> list[Operand]:
    """The columns of each block of rows that hold `unit` lanes of a column side by side."""
    if len(rows) == 1:
        return [*rows]
    count = rows[0].type.lanes
    halves: list[list[Operand]] = [[], []]
    for x, y in zip(rows[::2], rows[1::2], strict=True):
        for half, zipped in enumerate(halves):
            first = half * size // 2
            lanes = [first + k // 2 // unit * unit + k % unit for k in range(size)]
            side = [k // unit % 2 * count for k in range(size)]
            order = [at + lanes[k] + side[k] for at in range(0, count, size) for k in range(size)]
            zipped.append(b.shuffle(x, y, order))
    return [column for half in halves for column in _zipped(b, half, 2 * unit, size)]


def _gathered(b: Builder, rows: Sequence[Operand], size: int) -> list[Operand]:
    """The first blocks of all rows, the second blocks, and so on: even blocks, odd blocks."""
    if len(rows) == 1:
        return [*rows]
    every = range(0, 2 * rows[0].type.lanes, size)
    parts: list[list[Operand]] = []
    for odd in (0, 1):
        order = [at + k for at in every[odd::2] for k in range(size)]
        pairs = zip(rows[::2], rows[1::2], strict=True)
        parts.append(_gathered(b, [b.shuffle(x, y, order) for x, y in pairs], size))
    return [row for pair in zip(*parts, strict=True) for row in pair]

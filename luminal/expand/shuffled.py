"""Loads whose elements lie otherwise than in the order of lanes: whole vectors, shuffled.

Lanes that walk backwards are turned round. Of lanes a few elements apart the blocks that they lie
in are read. A tile that lies along one axis and is used along another is transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luminal.expand.builder import Builder
from luminal.expand.fold import constant
from luminal.expand.ir import CONDITION, Operand
from luminal.expand.tiles import Elements, Tiles
from luminal.kernel.loops import SHORT_STEP
from luminal.kernel.tile_ir import Load
from luminal.shape.expression import ONE, Expression, Symbol

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
    found: Operand | None = None
    for block in range(-(-((count - 1) * step + 1) // count)):
        places = [divmod(block * count + k, step) for k in range(count)]  # (lane, beside it)
        wanted = b.shuffle(mask, none, [count if beside else lane for lane, beside in places])
        part = read(block * count, wanted)
        own = [lane * step // count == block for lane in range(count)]
        lanes = [count + k * step % count if mine else k for k, mine in enumerate(own)]
        found = b.shuffle(part if found is None else found, part, lanes)
    assert found is not None
    return found


def transposable(tiles: Tiles, statement: Load, axes: Sequence[Symbol]) -> Symbol | None:
    """An axis with as many pieces as there are lanes, along which memory is contiguous while it
    jumps from lane to lane: the tile is loaded along it and transposed.
    """
    offset = statement.offset
    wide = tiles.wide_axis(axes)
    if wide is None or wide in tiles.live or not statement.guard.symbols().isdisjoint(axes):
        return None
    if any(tile.axes for _, tile in statement.indices):
        return None
    pieces, jumps = tiles.pieces[wide], offset.coefficient(wide)
    if pieces.number > 1 or jumps is None:
        return None
    if jumps.is_const and abs(jumps.value) <= SHORT_STEP:
        return None
    for axis in axes:
        other = tiles.pieces[axis]
        if (other.number, other.width) == (pieces.width, 1) and offset.coefficient(axis) is ONE:
            return axis
    return None


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
        for k, value in enumerate(_turned(tiles.b, rows)):
            elements[tuple({**position, across: k}[axis] for axis in axes)] = value
    return elements


def _turned(b: Builder, rows: list[Operand]) -> list[Operand]:
    """As many vectors as lanes, a power of two: blocks change places, halves at a time."""
    count = len(rows)
    step = count // 2
    while step:
        low = [k if not k & step else count + k - step for k in range(count)]
        high = [k + step if not k & step else count + k for k in range(count)]
        for k in (k for k in range(count) if not k & step):
            upper, lower = rows[k], rows[k + step]
            rows[k], rows[k + step] = b.shuffle(upper, lower, low), b.shuffle(upper, lower, high)
        step //= 2
    return rows

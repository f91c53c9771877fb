"""Loads and stores of tiles, a piece at a time: guards and dead positions are masks.

Along the lanes of a piece an offset that grows by one is one access, one that does not change a
scalar one, and any other has an address in each lane. Stores whose lanes may meet at one address
are made lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luminal.dtypes import int64
from luminal.expand.casts import from_memory, to_memory
from luminal.expand.fold import constant, uniform
from luminal.expand.ir import Operand, Type, memory_dtype
from luminal.expand.lanes import Lanes
from luminal.expand.pointwise import POINTWISE
from luminal.expand.shuffled import SHORT_STEPS, backwards, strided, transposable, transposed
from luminal.expand.tiles import Elements, Position, Tiles
from luminal.kernel.tile_ir import Load, Store
from luminal.shape.expression import ONE, TRUE, Expression, Symbol

# --- loads ----------------------------------------------------------------------------------------


def load(tiles: Tiles, statement: Load) -> None:
    """Every piece of the tile."""
    out = statement.out
    across = transposable(tiles, statement)
    if across is not None:
        tiles.values[out.id] = _load_transposed(tiles, statement, across)
        return
    elements: Elements = {}
    for key, position in tiles.positions(out.axes):
        lanes = _bound(tiles, statement, out.axes, position)
        offset = tiles.moved(statement.offset, position)
        mask = _mask(tiles, statement, out.axes, position, lanes)
        if lanes is None:
            elements[key] = read(tiles, statement.buffer, tiles.index.scalar(offset), mask)
        else:
            elements[key] = _load(tiles, statement.buffer, offset, mask, lanes)
    tiles.values[out.id] = elements


def _load(
    tiles: Tiles, buffer: str, offset: Expression, mask: Operand | None, lanes: Lanes
) -> Operand:
    b, index = tiles.b, tiles.index

    def in_a_row(offset: Expression, mask: Operand | None) -> Operand:
        return read(tiles, buffer, index.scalar(offset), mask, lanes.count)

    step = lanes.step(offset)
    if step is ONE:
        return in_a_row(offset, mask)
    if step is not None and step.is_const and step.constant == -1:
        return backwards(b, in_a_row, offset, mask, lanes.count)
    if step is not None and step.is_const and 1 < step.constant <= SHORT_STEPS:
        return strided(b, in_a_row, offset, mask, lanes.count, step.constant)
    if lanes.vary(offset):
        return read(tiles, buffer, lanes.integers(offset), mask, lanes.count)
    wanted = None if mask is None else b.op("any", mask)
    value = lanes.spread(read(tiles, buffer, index.scalar(offset), wanted))
    if mask is None:
        return value
    return b.op("select", mask, value, constant(value.type, 0))


def _load_transposed(tiles: Tiles, statement: Load, across: Symbol) -> Elements:
    _bound(tiles, statement, (), {})
    mask = _mask(tiles, statement, (), {}, None)
    count = tiles.lanes(statement.out.axes)
    where = None if mask is None else tiles.b.spread(mask, count)

    def in_a_row(offset: Expression, _: Operand | None) -> Operand:
        return read(tiles, statement.buffer, tiles.index.scalar(offset), where, count)

    return transposed(tiles, statement, across, in_a_row)


def read(
    tiles: Tiles, buffer: str, address: Operand, mask: Operand | None, lanes: int = 1
) -> Operand:
    """Elements as they are held; 0 where the mask does not hold."""
    dtype = tiles.buffers[buffer].dtype
    if mask is not None and uniform(mask) == 0:
        value: Operand = constant(Type(memory_dtype(dtype), lanes), 0)
    else:
        value = tiles.b.load(Type(memory_dtype(dtype), lanes), buffer, address, mask)
    return from_memory(tiles.b, dtype, value)


# --- stores ---------------------------------------------------------------------------------------


def store(tiles: Tiles, statement: Store) -> None:
    """Every piece in row-major order; what is added is added one piece after the other."""
    used = set(statement.value.axes) | statement.offset.symbols() | statement.guard.symbols()
    for _, tile in statement.indices:
        used |= set(tile.axes)
    axes = tuple(axis for axis in tiles.active if statement.add or axis in used)
    apart = _lie_apart(tiles, statement, axes)
    alone = tiles.is_first(axes)
    for _, position in tiles.positions(axes):
        lanes = _bound(tiles, statement, axes, position)
        mask = _mask(tiles, statement, axes, position, lanes)
        if alone is not None:
            mask = alone if mask is None else tiles.b.op("and", mask, alone)
        value = tiles.element(statement.value, position)
        offset = tiles.moved(statement.offset, position)
        if lanes is None:
            _write(tiles, statement, tiles.index.scalar(offset), value, mask)
        elif not apart:
            _write_by_lane(tiles, statement, offset, value, mask, lanes)
        else:
            in_a_row = lanes.step(offset) is ONE
            address = tiles.index.scalar(offset) if in_a_row else lanes.integers(offset)
            _write(tiles, statement, address, lanes.spread(value), mask)


def _lie_apart(tiles: Tiles, statement: Store, axes: Sequence[Symbol]) -> bool:
    """May the lanes be stored together? Not where two could meet at one address, nor where a lane
    must come after another position's.
    """
    wide = tiles.wide_axis(axes)
    if wide is None or any(wide in tile.axes for _, tile in statement.indices):
        return False
    step = statement.offset.coefficient(wide)
    if step is ONE:
        return not statement.indices or axes[-1] is wide
    moves = step is not None and (step.interval.at_least(1) or step.interval.at_most(-1))
    return moves and not statement.indices and not statement.add


def _write(
    tiles: Tiles, statement: Store, address: Operand, value: Operand, mask: Operand | None
) -> None:
    b, dtype = tiles.b, statement.value.dtype
    if mask is not None and uniform(mask) == 0:
        return
    if statement.add:
        old = read(tiles, statement.buffer, address, mask, value.type.lanes)
        value = POINTWISE["Add"](b, dtype, (old, value))
    b.store(statement.buffer, address, to_memory(b, dtype, value), mask)


def _write_by_lane(
    tiles: Tiles,
    statement: Store,
    offset: Expression,
    value: Operand,
    mask: Operand | None,
    lanes: Lanes,
) -> None:
    b = tiles.b
    addresses = lanes.integers(offset) if lanes.vary(offset) else tiles.index.scalar(offset)
    for lane in range(lanes.count):
        own = None if mask is None else b.lane(mask, lane)
        _write(tiles, statement, b.lane(addresses, lane), b.lane(value, lane), own)


# --- where ----------------------------------------------------------------------------------------


def _bound(
    tiles: Tiles, statement: Load | Store, axes: Sequence[Symbol], position: Position
) -> Lanes | None:
    """The lanes of an access; index symbols that all lanes share are bound."""
    values: dict[Symbol, Operand] = {}
    for symbol, tile in statement.indices:
        value = tiles.b.cast(tiles.element(tile, position), int64)
        if value.type.lanes > 1:
            values[symbol] = value
        else:
            tiles.index.bind(symbol, value)
    wide = tiles.wide_axis(axes)
    if wide is None:
        return None
    return Lanes(tiles.index, wide, tiles.pieces[wide].width, values)


def _mask(
    tiles: Tiles,
    statement: Load | Store,
    axes: Iterable[Symbol],
    position: Position,
    lanes: Lanes | None,
) -> Operand | None:
    """Where the access happens; None for everywhere."""
    masks = [tiles.live[axis][position[axis]] for axis in axes if axis in tiles.live]
    if statement.guard is not TRUE:
        guard = tiles.moved(statement.guard, position)
        masks.append(tiles.index.condition(guard) if lanes is None else lanes.mask(guard))
    return tiles.b.both([mask for mask in masks if uniform(mask) != 1])

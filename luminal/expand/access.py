"""Loads and stores of tiles, an element at a time: guards and dead positions are masks."""

from __future__ import annotations

from collections.abc import Iterable

from luminal.dtypes import int64
from luminal.expand.casts import from_memory, to_memory
from luminal.expand.fold import constant, uniform
from luminal.expand.ir import Operand, Type, memory_dtype
from luminal.expand.pointwise import POINTWISE
from luminal.expand.tiles import Elements, Position, Tiles
from luminal.kernel.tile_ir import Load, Store
from luminal.shape.expression import TRUE, Symbol


def load(tiles: Tiles, statement: Load) -> None:
    """Every piece of the tile."""
    out = statement.out
    elements: Elements = {}
    for key, position in tiles.positions(out.axes):
        _bind(tiles, statement, position)
        mask = _mask(tiles, statement, out.axes, position)
        address = tiles.index.scalar(tiles.moved(statement.offset, position))
        elements[key] = read(tiles, statement.buffer, address, mask)
    tiles.values[out.id] = elements


def store(tiles: Tiles, statement: Store) -> None:
    """Every piece in row-major order; what is added is added one piece after the other."""
    b = tiles.b
    used = set(statement.value.axes) | statement.offset.symbols() | statement.guard.symbols()
    for _, tile in statement.indices:
        used |= set(tile.axes)
    axes = tuple(axis for axis in tiles.active if statement.add or axis in used)
    dtype = statement.value.dtype
    for _, position in tiles.positions(axes):
        _bind(tiles, statement, position)
        mask = _mask(tiles, statement, axes, position)
        address = tiles.index.scalar(tiles.moved(statement.offset, position))
        value = tiles.element(statement.value, position)
        if statement.add:
            old = read(tiles, statement.buffer, address, mask)
            value = POINTWISE["Add"](b, dtype, (old, value))
        if mask is None or uniform(mask) != 0:
            b.store(statement.buffer, address, to_memory(b, dtype, value), mask)


def read(tiles: Tiles, buffer: str, address: Operand, mask: Operand | None) -> Operand:
    """An element as it is held; 0 where the mask does not hold."""
    dtype = tiles.buffers[buffer].dtype
    if mask is not None and uniform(mask) == 0:
        value: Operand = constant(Type(memory_dtype(dtype)), 0)
    else:
        value = tiles.b.load(dtype, buffer, address, mask)
    return from_memory(tiles.b, dtype, value)


def _bind(tiles: Tiles, statement: Load | Store, position: Position) -> None:
    """The statement's index symbols, which have values of their own at each position."""
    for symbol, tile in statement.indices:
        tiles.index.bind(symbol, tiles.b.cast(tiles.element(tile, position), int64))


def _mask(
    tiles: Tiles, statement: Load | Store, axes: Iterable[Symbol], position: Position
) -> Operand | None:
    """Where the access happens; None for everywhere."""
    masks = [tiles.live[axis][position[axis]] for axis in axes if axis in tiles.live]
    if statement.guard is not TRUE:
        masks.append(tiles.index.condition(tiles.moved(statement.guard, position)))
    return tiles.b.both([mask for mask in masks if uniform(mask) != 1])

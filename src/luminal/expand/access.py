"""Loads and stores of tiles, a piece at a time, predicated: guards and dead positions are masks.

Along the lanes of a piece an offset that grows by one is one access, one that does not change a
scalar one, and any other has an address in each lane. Stores whose lanes may meet at one address
are made lane by lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from luminal.base.dots import WORDS
from luminal.base.dtypes import DType, int64
from luminal.base.records import dataclass
from luminal.expand import ir
from luminal.expand.casts import from_memory, neighbours, to_memory, word_of
from luminal.expand.fold import constant, uniform
from luminal.expand.index import without_constant
from luminal.expand.ir import CONDITION, LINE, Barrier, Fetch, Operand, Type, memory_dtype
from luminal.expand.lanes import Lanes
from luminal.expand.pointwise import POINTWISE
from luminal.expand.shuffled import (
    backwards,
    stored_turned,
    strided,
    transposable,
    transposed,
    turnable,
)
from luminal.expand.tiles import Elements, Position, Tiles
from luminal.kernel.loops import SHORT_STEP
from luminal.kernel.neighbours import word_offset
from luminal.kernel.tile_ir import Copy, Load, Store
from luminal.shape.condition import linear_form
from luminal.shape.divisors import is_multiple
from luminal.shape.expression import (
    ONE,
    TRUE,
    ZERO,
    Expression,
    Symbol,
    all_of,
    axis,
    const,
)
from luminal.shape.prove import prove, simplify


@dataclass(frozen=True, slots=True)
class _Access:
    """A piece lies at `distance` elements from an offset in a buffer that pieces share. It is
    accessed where `mask` holds, None for everywhere. `lanes` are None where the piece is a scalar.
    """

    buffer: str
    offset: Expression
    distance: int
    mask: Operand | None
    lanes: Lanes | None
    guard: Expression = TRUE

    def address(self, tiles: Tiles) -> tuple[Operand, int]:
        """The address of the first lane, or of all lanes, and the distance behind it."""
        return tiles.place(self.buffer, self.offset, self.distance)

    def addresses(self, tiles: Tiles) -> tuple[Operand, int]:
        """One for each lane, or one for all where they are the same."""
        lanes, offset = self.lanes, self.offset
        if lanes is None or not lanes.is_varying(offset):
            return self.address(tiles)
        return lanes.integers(without_constant(offset)), self.distance + offset.constant


# --- loads ----------------------------------------------------------------------------------------


def load(tiles: Tiles, statement: Load) -> None:
    """Every piece of the tile. Neighbours that lie side by side are a word; others become one."""
    out = statement.out
    tiles.read.add(statement.buffer)
    type_ = memory_dtype(tiles.buffers[statement.buffer].dtype)
    near = tiles.near_axis(out.axes)
    if statement.prefetch is not ZERO:
        # Before the load itself, so that the lines are on their way while the loads of this piece
        # are waited for.
        _fetch(tiles, statement)
    if near is None:
        tiles.values[out.id] = _elements(tiles, statement, out.axes, type_)
        return
    count = tiles.pieces[near].neighbours
    axes = tuple(axis for axis in out.axes if axis is not near)
    offset = word_offset(statement.offset, near, count)
    if offset is not None:
        word = replace(statement, offset=offset)
        elements = _elements(tiles, word, axes, WORDS[count * type_.size])
    else:
        moved = (statement.offset.substitute({near: const(n)}) for n in range(count))
        parts = [_elements(tiles, replace(statement, offset=at), axes, type_) for at in moved]
        elements = {
            key: word_of(tiles.b, [part[key] for part in parts], out.dtype) for key in parts[0]
        }
    at = out.axes.index(near)
    tiles.values[out.id] = {(*key[:at], 0, *key[at:]): value for key, value in elements.items()}


def _elements(tiles: Tiles, statement: Load, axes: Sequence[Symbol], type_: DType) -> Elements:
    """Elements, or words, at every piece of these axes."""
    across = transposable(tiles, statement, axes)
    if across is not None:
        return _load_transposed(tiles, statement, axes, across, type_)
    elements: Elements = {}
    for key, position in tiles.positions(axes):
        place = _place(tiles, statement, axes, position)
        if place.lanes is None:
            at = place.address(tiles)
            elements[key] = read(tiles, statement.buffer, at, place.mask, type_=type_)
        else:
            elements[key] = _load(tiles, statement, place, place.lanes, type_)
    return elements


def _load(tiles: Tiles, statement: Load, place: _Access, lanes: Lanes, type_: DType) -> Operand:
    b, mask, buffer = tiles.b, place.mask, statement.buffer
    step = lanes.step(place.offset)
    if step is None or not step.is_const or not -1 <= step.constant <= SHORT_STEP:
        return read(tiles, buffer, place.addresses(tiles), mask, lanes.count, type_)
    address, distance = place.address(tiles)

    def in_a_row(beyond: int, mask: Operand | None) -> Operand:
        return read(tiles, buffer, (address, distance + beyond), mask, lanes.count, type_)

    if step is ONE:
        return in_a_row(0, mask)
    if step.constant == -1:
        return backwards(b, in_a_row, mask, lanes.count)
    if step is not ZERO:
        return strided(b, in_a_row, mask, lanes.count, step.constant)
    # One load for all lanes, made where any of them asks for it.
    wanted = None if mask is None else b.op("any", mask)
    value = lanes.spread(read(tiles, buffer, (address, distance), wanted, type_=type_))
    if mask is None:
        return value
    return b.op("select", mask, value, constant(value.type, 0))


def _fetch(tiles: Tiles, statement: Load) -> None:
    """The lines that are read soon, one after the other, where all lanes read side by side."""
    near = tiles.near_axis(statement.out.axes)
    axes = tuple(axis for axis in statement.out.axes if axis is not near)
    offset, count = statement.offset, 1
    if near is not None:
        offset, count = offset.substitute({near: ZERO}), tiles.pieces[near].neighbours
    first = dict.fromkeys(axes, 0)
    place = _place(tiles, replace(statement, offset=offset), axes, first)
    # Only what is read whole and side by side: a line that is fetched for one element, or for none,
    # drives out one that is needed.
    if place.lanes is None or place.mask is not None:
        return
    if place.lanes.step(place.offset) != const(count):
        return
    # A prefetch never faults, so an address beyond the buffer's end needs no guard.
    ahead = _place(tiles, replace(statement, offset=offset + statement.prefetch), axes, first)
    address, distance = ahead.address(tiles)
    pieces = prod(tiles.pieces[axis].number for axis in axes)
    size = tiles.buffers[statement.buffer].dtype.size
    elements = pieces * place.lanes.count * count
    for start in range(0, elements, LINE // size):
        tiles.b.emit(Fetch(statement.buffer, address, distance + start))


def _load_transposed(
    tiles: Tiles, statement: Load, axes: Sequence[Symbol], across: Symbol, type_: DType
) -> Elements:
    b, mask, count = tiles.b, _place(tiles, statement, (), {}).mask, tiles.lanes(axes)
    where = None if mask is None else b.spread(mask, count)
    number = tiles.pieces[across].number
    if number < count:  # what lies beyond is not of this tile, and perhaps nobody's
        none = b.spread(constant(CONDITION, False), count)
        every = b.spread(constant(CONDITION, True), count) if where is None else where
        where = b.shuffle(every, none, [k if k < number else count for k in range(count)])

    def in_a_row(offset: Expression, distance: int) -> Operand:
        at = tiles.place(statement.buffer, offset, distance)
        return read(tiles, statement.buffer, at, where, count, type_)

    return transposed(tiles, statement, axes, across, in_a_row)


def read(
    tiles: Tiles,
    buffer: str,
    at: tuple[Operand, int],
    mask: Operand | None,
    lanes: int = 1,
    type_: DType | None = None,
) -> Operand:
    """Elements as they are held, or words of this type; 0 where the mask does not hold."""
    dtype = tiles.buffers[buffer].dtype
    stored_as = memory_dtype(dtype)
    wanted = Type(type_ or stored_as, lanes)
    if mask is not None and uniform(mask) == 0:
        # A load that is known to read nothing is a 0: a masked one would still cost its cycle.
        value: Operand = constant(wanted, 0)
    else:
        address, distance = at
        value = tiles.b.load(wanted, buffer, address, mask, distance)
    return from_memory(tiles.b, dtype, value) if wanted.dtype is stored_as else value


# --- stores ---------------------------------------------------------------------------------------


def store(tiles: Tiles, statement: Store) -> None:
    """Every piece in row-major order; what is added is added one piece after the other. Neighbours
    are stored as the word that holds them, or one by one.
    """
    value = statement.value
    elements = tiles.elements(value)
    near = tiles.near_axis(value.axes)
    if near is None:
        _store(tiles, statement, elements)
        return
    count = tiles.pieces[near].neighbours
    offset = word_offset(statement.offset, near, count)
    if offset is not None:
        _store(tiles, replace(statement, offset=offset), elements)
        return
    parts = {key: neighbours(tiles.b, word, value.dtype) for key, word in elements.items()}
    for n in range(count):
        part = {key: piece[n] for key, piece in parts.items()}
        at = statement.offset.substitute({near: const(n)})
        _store(tiles, replace(statement, offset=at), part)


def _store(tiles: Tiles, statement: Store, elements: Elements) -> None:
    used = set(statement.value.axes) | statement.offset.symbols() | statement.guard.symbols()
    for _, tile in statement.indices:
        used |= set(tile.axes)
    # What is set is the same at positions that the store does not name, so once is enough; what is
    # added is added at each of them.
    axes = tuple(axis for axis in tiles.active if statement.add or axis in used)
    alone = tiles.is_first(axes)
    if alone is not None and statement.buffer in tiles.read:
        # What one lane overwrites others have read, or are about to.
        tiles.b.emit(Barrier())
        tiles.read.clear()
    across = turnable(tiles, statement, axes)
    if across is not None:
        where = _place(tiles, statement, (), {}, alone).mask or constant(CONDITION, True)
        tiles.b.where(where, lambda: _store_turned(tiles, statement, elements, axes, across))
        return
    wide, b = tiles.wide_axis(axes), tiles.b
    # Integers that differ from lane to lane may lead two of them to one address.
    by_lane = wide is not None and any(wide in tile.axes for _, tile in statement.indices)
    for _, position in tiles.positions(axes):
        place = _place(tiles, statement, axes, position, alone, by_lane)
        value = elements[tuple(position[axis] for axis in statement.value.axes)]
        lanes = place.lanes
        if lanes is None:
            _write(tiles, statement, place.address(tiles), value, place.mask)
            continue
        step = lanes.step(place.offset)
        if by_lane or not _are_apart(statement, axes[-1] is wide, step):
            _write_by_lane(tiles, statement, place, value, lanes)
            continue
        value = lanes.spread(value)
        if step is ONE:
            _write(tiles, statement, place.address(tiles), value, place.mask)
        elif step is None or not step.is_const or place.mask or b.has("scatter", value.type):
            _write(tiles, statement, place.addresses(tiles), value, place.mask)
        else:  # of vectors that are stored element by element all the same, one address is enough
            address, distance = place.address(tiles)
            for lane in range(lanes.count):
                at = address, distance + lane * step.value
                _write(tiles, statement, at, b.lane(value, lane), None)


def _store_turned(
    tiles: Tiles, statement: Store, elements: Elements, axes: Sequence[Symbol], across: Symbol
) -> None:
    b, value, lanes = tiles.b, statement.value, tiles.lanes(axes)

    def element(position: Position) -> Operand:
        at_position = elements[tuple(position[axis] for axis in value.axes)]
        return b.spread(to_memory(b, value.dtype, at_position), lanes)

    def write(offset: Expression, distance: int, column: Operand) -> None:
        _write(tiles, statement, tiles.place(statement.buffer, offset, distance), column, None)

    stored_turned(tiles, statement, axes, across, element, write)


def _are_apart(statement: Store, innermost: bool, step: Expression | None) -> bool:
    """May lanes that are `step` elements apart be stored together? Not where two could meet at one
    address, nor where a lane must come after another position's.
    """
    # Lanes come one after the other in row-major order where they are the innermost axis.
    if step is ONE:
        return not statement.indices or innermost
    moves = step is not None and (step.interval.at_least(1) or step.interval.at_most(-1))
    return moves and not statement.indices and not statement.add


def _write(
    tiles: Tiles, statement: Store, at: tuple[Operand, int], value: Operand, mask: Operand | None
) -> None:
    b, dtype = tiles.b, statement.value.dtype
    if statement.add and mask is not None and value.type.lanes == 1:
        # One branch around the load, the sum and the store, not a mask for each access.
        b.where(mask, lambda: _write(tiles, statement, at, value, None))
        return
    if mask is not None and uniform(mask) == 0:
        return
    if statement.add:
        old = read(tiles, statement.buffer, at, mask, value.type.lanes)
        value = POINTWISE["Add"](b, dtype, (old, value))
    address, distance = at
    if value.type.dtype is dtype.word:
        value = to_memory(b, dtype, value)
    b.store(statement.buffer, address, value, mask, distance)


# Machines without a scatter take a vector of addresses apart, and take the addresses out of it
# first. One address and a constant distance for each lane is what they would do by hand.
def _write_by_lane(
    tiles: Tiles, statement: Store, place: _Access, value: Operand, lanes: Lanes
) -> None:
    """Each lane's address and guard are of scalars: what one lane stores another may read."""
    b = tiles.b
    for lane in range(lanes.count):
        for symbol, values in lanes.values.items():
            tiles.index.bind(symbol, b.lane(values, lane))
        there = {lanes.axis: lanes.axis + lane}
        offset, guard = (e.substitute(there) for e in (place.offset, place.guard))
        masks = [] if place.mask is None else [b.lane(place.mask, lane)]
        if guard is not TRUE:
            masks.append(tiles.index.condition(guard))
        at = tiles.place(statement.buffer, offset, place.distance)
        _write(tiles, statement, at, b.lane(value, lane), b.both(masks))


# --- copies ---------------------------------------------------------------------------------------


def copy(tiles: Tiles, statement: Copy) -> None:
    """Each copy of the tile, by one of the lanes that would all make it."""
    exprs = (statement.offset, statement.source_offset, statement.guard)
    used = frozenset(symbol for expr in exprs for symbol in expr.symbols())
    axes = tuple(axis for axis in tiles.active if axis in used)
    alone, index = tiles.is_first(axes), tiles.index

    def write() -> None:
        for _, position in tiles.positions(axes):
            ends = (
                (statement.buffer, statement.offset),
                (statement.source, statement.source_offset),
            )
            to, start = (tiles.place(name, *tiles.reach(offset, position)) for name, offset in ends)
            guard = tiles.moved(statement.guard, position)
            live = None if guard is TRUE else index.condition(guard)
            tiles.b.emit(
                ir.Copy(statement.buffer, *to, statement.source, *start, statement.count, live)
            )

    tiles.b.where(constant(CONDITION, True) if alone is None else alone, write)


# --- where ----------------------------------------------------------------------------------------


def _place(
    tiles: Tiles,
    statement: Load | Store,
    axes: Sequence[Symbol],
    position: Position,
    also: Operand | None = None,
    by_lane: bool = False,
) -> _Access:
    """The place of a position of the axes, accessed only where `also` holds; index symbols that all
    lanes share are bound. `by_lane`: the guard is left to each lane.
    """
    values: dict[Symbol, Operand] = {}
    for symbol, tile in statement.indices:
        value = tiles.b.cast(tiles.element(tile, position), int64)
        if value.type.lanes > 1:
            values[symbol] = value
        else:
            tiles.index.bind(symbol, value)
    # Three things may mask a position: the tail of a loop, the guard of the access, and the caller.
    masks = [tiles.live[axis][position[axis]] for axis in axes if axis in tiles.live]
    offset, guard, lanes = statement.offset, statement.guard, None
    wide = tiles.wide_axis(axes)
    if wide is not None:
        (offset, guard), lane, position = tiles.by_lane((offset, guard), wide, position)
        lanes = Lanes(tiles.index, lane, tiles.pieces[wide].width, values)
    if guard is not TRUE:
        guard = _in_runs(tiles, guard, position)
        if tiles.whole:
            guard = _in_whole_tiles(tiles, guard, lanes)
        if lanes is None or not by_lane:
            masks.append(tiles.index.condition(guard) if lanes is None else lanes.mask(guard))
            guard = TRUE
    if also is not None:
        masks.append(also)
    mask = tiles.b.both([mask for mask in masks if uniform(mask) != 1])
    return _Access(statement.buffer, *tiles.reach(offset, position), mask, lanes, guard)


def _in_runs(tiles: Tiles, guard: Expression, position: Position) -> Expression:
    """The guard at a position: where all of a run are alike as it asks it of the first of them."""
    parts = guard.args if guard.op == "and" else (guard,)

    def first(part: Expression, axis: Symbol, piece: int) -> int:
        run = tiles.pieces[axis].across
        return piece // run * run if axis in tiles.even and _is_alike(part, axis, run) else piece

    return all_of(
        tiles.moved(part, {axis: first(part, axis, piece) for axis, piece in position.items()})
        for part in parts
    )


@lru_cache(4096)
def _is_alike(part: Expression, axis: Symbol, run: int) -> bool:
    """Does a comparison hold for all or for none of the axis's positions from each multiple of a
    run up to the next?
    """
    if part.op not in ("lt", "le"):
        return False
    form = linear_form(part)
    step = form.coefficient(axis)
    if step is ONE:
        return is_multiple(form - axis, run)
    return step == const(-1) and is_multiple(form + axis + 1, run)


# That a tile is whole is known once for all its vectors. Asked again by each, as a loop's stop says
# it, the last chunk of a split reduction had a mask on every load: three sums of a million took 1.1
# times, an argmax 1.4 times as long.
def _in_whole_tiles(tiles: Tiles, guard: Expression, lanes: Lanes | None) -> Expression:
    """What is left to ask where tiles end before their loops do: of lanes, what not all know."""
    facts = tuple(tiles.whole.values())
    if lanes is None:
        return simplify(guard, facts)
    any_lane = {lanes.axis: lanes.axis + axis("lane", lanes.count)}
    parts = guard.args if guard.op == "and" else (guard,)
    return all_of(part for part in parts if not prove(part.substitute(any_lane), facts))

"""Blocks that lanes hold between them: factors loaded from shared memory, and what they multiply.

What a lane holds of a factor are words of neighbours along the sum. Where memory has these side by
side a word is one load; and where the words of eight lanes are 16 bytes, all lanes of a row load
them together (`LoadMatrix`), in memory that lies along the sum or, of 16 bits, across it.

A dot that reads factors in shared memory is told where its blocks begin, and how their lines lie.
Which factors are left there, swizzled memory says.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

from luminal.base.dots import SCALES, WORDS, Dot
from luminal.base.dtypes import DType, float32, uint8, uint32
from luminal.base.fragments import Fragment, fragment
from luminal.base.records import dataclass
from luminal.expand import access
from luminal.expand.casts import narrowed_pair, word_of
from luminal.expand.groups import Fold, exchanged
from luminal.expand.ir import (
    Accumulate,
    Begin,
    Kernel,
    Left,
    LoadMatrix,
    LoadSums,
    Multiply,
    MultiplyLeft,
    Operand,
    Type,
    memory_dtype,
)
from luminal.expand.operations import IN_PAIRS
from luminal.expand.tiles import Elements, Key, Position, Tiles
from luminal.kernel import boxes, tile_ir
from luminal.kernel.boxes import SCALES_OF_COLUMN, SQUARE
from luminal.kernel.neighbours import word_offset
from luminal.kernel.tile_ir import Contract, Load, Map, Retile, Space, Tile
from luminal.memory.alignment import ACCESS
from luminal.shape.expression import ONE, ZERO, Expression, Symbol, const, opaque

LEAST_COLUMNS = 32
"""Of tensor memory that are allocated at once."""
OF_SQUARE = prod(SQUARE)
"""Scales that tensor memory takes at once."""
BYTES = {1: uint8, **WORDS}
"""What so many scales are loaded as."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A block of a dot as lanes hold it: its axes by side, and the others of the tile."""

    dot: Dot
    block: str
    sides: dict[str, Symbol]
    outer: tuple[Symbol, ...]

    @classmethod
    def of(cls, tiles: Tiles, tile: Tile) -> _Held:
        """The block that a tile is for each position of its other axes."""
        parts = {axis: tiles.parts[axis] for axis in tile.axes if axis in tiles.parts}
        (dot,) = {part.dot for part in parts.values()}
        block = tiles.block(tile.axes)
        assert block is not None
        outer = tuple(axis for axis in tile.axes if axis not in parts)
        return cls(dot, block, {part.side: axis for axis, part in parts.items()}, outer)

    @property
    def fragment(self) -> Fragment:
        return self.dot.fragment(self.block)

    @property
    def words(self) -> int:
        """Elements in a word."""
        return self.dot.in_word(self.block)

    @property
    def neighbours(self) -> Symbol:
        """The axis along which the elements of a word lie."""
        element = fragment(self.dot.fragments["abc".index(self.block)]).element
        return self.sides[element[0][0] if element and element[0] else "k"]

    def position(self, element: int) -> Position:
        """The pieces of its sides at which an element is."""
        held = self.fragment
        return {axis: held.piece(side, element) for side, axis in self.sides.items()}

    def key(self, tile: Tile, at: Position, element: int) -> Key:
        """The key of an element where the other axes are at a position."""
        there = {**at, **self.position(element)}
        return tuple(there[axis] for axis in tile.axes)


# --- factors --------------------------------------------------------------------------------------


def is_factor(tiles: Tiles, tile: Tile) -> bool:
    """Is it a factor that lanes hold between them?"""
    return tiles.block(tile.axes) in ("a", "b")


def load_factor(tiles: Tiles, statement: Load) -> None:
    """The words of a factor that each lane holds; or where it is, if it stays there."""
    if tiles.buffers[statement.buffer].swizzle:
        tiles.left[statement.out.id] = statement
        return
    held, dtype = _Held.of(tiles, statement.out), tiles.buffers[statement.buffer].dtype
    rows = _by_rows(tiles, statement, held)
    if rows is not None:
        tiles.values[statement.out.id] = rows
        return
    count, size = held.words, memory_dtype(dtype).size
    is_word = word_offset(statement.offset, held.neighbours, count) is not None
    step = statement.offset.coefficient(held.neighbours)
    runs = ZERO if step is not None and step.is_const else _runs(tiles, held)
    elements: Elements = {}
    for _, at in tiles.positions(held.outer):
        for element in range(held.fragment.elements):
            parts = [
                _element(tiles, held, runs, statement.offset, at, element, n) for n in range(count)
            ]
            if count > 1 and (is_word or _are_word(parts)):
                offset, distance = parts[0]
                place = tiles.index.place(offset, distance)
                shift = count.bit_length() - 1
                place = tiles.index.op("shr", place[0], shift), place[1] // count
                value = access.read(tiles, statement.buffer, place, None, type_=WORDS[count * size])
            else:
                loaded = [
                    access.read(tiles, statement.buffer, tiles.index.place(*part), None)
                    for part in parts
                ]
                value = word_of(tiles.b, loaded, dtype) if count > 1 else loaded[0]
            elements[held.key(statement.out, at, element)] = value
    tiles.values[statement.out.id] = elements


def is_scales(tiles: Tiles, tile: Tile) -> bool:
    """Is it the scales of a factor?"""
    dots = {tiles.parts[axis].dot for axis in tile.axes if axis in tiles.parts}
    return any(dot.scale is tile.dtype is not dot.a for dot in dots)


def load_scales(tiles: Tiles, statement: Load) -> None:
    """The word of scales that each lane gives to a product; or where these are, if they stay."""
    out = statement.out
    sides = {tiles.parts[axis].side: axis for axis in out.axes if axis in tiles.parts}
    dot, mine = tiles.parts[sides[min(sides, key="nmk".index)]].dot, "n" if "n" in sides else "m"
    if dot.is_from_memory:
        tiles.left[out.id] = statement
        return
    row = opaque(f"{sides[mine].name}.scale", 0, getattr(dot, mine) - 1)
    held = fragment(SCALES["mn".index(mine)])
    tiles.index.bind(row, tiles.bits_of_lane(held.lane_bits(mine)))
    there = {sides[mine]: row, **({sides["k"]: ZERO} if "k" in sides else {})}
    offset, count = statement.offset.substitute(there), dot.k // dot.block
    elements: Elements = {}
    for key, at in tiles.positions(axis for axis in out.axes if axis not in tiles.parts):
        address, distance = tiles.index.place(*tiles.reach(offset, at))
        shift = count.bit_length() - 1
        place = tiles.index.op("shr", address, shift) if shift else address, distance // count
        word = access.read(tiles, statement.buffer, place, None, type_=BYTES[count])
        elements[key] = tiles.b.cast(word, uint32)
    tiles.values[out.id] = elements


def _scale(tiles: Tiles, tile: Tile, at: Position) -> Operand:
    """A lane's word of the scales of the block of a factor that is at a position."""
    value = tiles.values[tile.id][tuple(at[axis] for axis in tile.axes if axis not in tiles.parts)]
    return tiles.said(value)


def _runs(tiles: Tiles, held: _Held) -> Expression:
    """Where a lane's first elements begin along their neighbours: as a multiple of their number,
    so that what divides it is the same for all of them.
    """
    tiles.deal(held.sides.values())
    side = next(side for side, axis in held.sides.items() if axis is held.neighbours)
    whole = fragment(held.dot.fragments["abc".index(held.block)])
    held_bits = {target for _, target in whole.element_bits(side)}
    low = next(bit for bit in range(len(held_bits) + 1) if bit not in held_bits)
    bits = tuple((source, target - low) for source, target in whole.lane_bits(side))
    if any(target < 0 for _, target in bits):
        return held.neighbours + 0
    number = opaque(f"{held.neighbours.name}.run", 0, (getattr(held.dot, side) >> low) - 1)
    tiles.index.bind(number, tiles.bits_of_lane(bits))
    return number * (1 << low)


def _are_word(parts: Sequence[tuple[Expression, int]]) -> bool:
    """Do places follow each other from a multiple of their number on?"""
    first, *others = (offset + distance for offset, distance in parts)
    follow = all(other - first is const(n) for n, other in enumerate(others, 1))
    return follow and (first // len(parts)) * len(parts) is first


def _element(
    tiles: Tiles, held: _Held, runs: Expression, offset: Expression, at: Position, element: int,
    n: int,
) -> tuple[Expression, int]:  # fmt: skip
    """Where the n-th neighbour of a word lies: an offset that words share, and a distance; `runs`
    is where the lane's elements begin, if offsets do not step evenly.
    """
    tiles.deal(held.sides.values())
    axis = held.neighbours
    step = offset.coefficient(axis)
    there = {**at, **held.position(element)}
    if step is not None and step.is_const:
        expr, distance = tiles.reach(offset, there)
        return expr, distance + n * step.constant
    place = runs + (tiles.pieces[axis].at(there.pop(axis)) + n)
    return tiles.reach(offset.substitute({axis: place}), there)


def _by_rows(tiles: Tiles, statement: Load, held: _Held) -> Elements | None:
    """The factor as rows of lanes load it together, if the machine does and it lies so."""
    buffer = tiles.buffers[statement.buffer]
    size, fragment = memory_dtype(buffer.dtype).size, held.fragment
    other = "n" if held.block == "b" else "m"
    x, k = held.sides[other], held.sides["k"]
    low = held.words.bit_length() - 1
    squares = (("k", low), ("k", low + 1), (other, 0), (other, 1), (other, 2))
    fits = fragment.lane == squares and fragment.elements in (1, 2, 4)
    if not fits or held.words * size != 4 or buffer.space is not Space.SHARED:
        return None
    if not tiles.b.has("load_matrix", Type(uint32)):
        return None
    along, across = (k, x) if statement.offset.coefficient(k) is ONE else (x, k)
    turned = across is k
    if turned and size != 2:
        return None
    if statement.offset.coefficient(along) is not ONE:
        return None
    row = ACCESS // size
    first = statement.offset.substitute({along: ZERO})
    if (first // row) * row is not first:
        return None
    lines = Fragment((*((held_side(turned, other), n) for n in range(3)), *fragment.element), ())
    there = {}
    for side, axis in ((other, x), ("k", k)):
        symbol = opaque(f"{axis.name}.row", 0, getattr(held.dot, side) - 1)
        tiles.index.bind(symbol, tiles.bits_of_lane(lines.lane_bits(side)))
        there[axis] = symbol
    offset = statement.offset.substitute(there)
    elements: Elements = {}
    for _, at in tiles.positions(held.outer):
        address, distance = tiles.index.place(*tiles.reach(offset, at))
        outs = tuple(tiles.b.value(Type(uint32)) for _ in range(fragment.elements))
        tiles.b.emit(LoadMatrix(outs, statement.buffer, address, distance, turned))
        for element, out in enumerate(outs):
            value = out if held.words > 1 else tiles.b.bitcast(out, buffer.dtype)
            elements[held.key(statement.out, at, element)] = value
    return elements


def held_side(turned: bool, other: str) -> str:
    """The side along which the rows of a square follow each other."""
    return "k" if turned else other


# --- results --------------------------------------------------------------------------------------


def retile(tiles: Tiles, statement: Retile) -> None:
    """Each lane's own results as words of a factor: none moves."""
    held, (*blocks, within) = _Held.of(tiles, statement.out), statement.columns
    dot, count = held.dot, held.words
    whole, results = fragment(dot.fragments[0]), dot.fragment("c")
    columns, rows = results.offsets("n"), results.offsets("m")
    elements: Elements = {}
    for _, at in tiles.positions(held.outer):
        for word in range(held.fragment.elements):
            parts = []
            for element in range(word * count, (word + 1) * count):
                block, column = divmod(statement.first + whole.position("k", 0, element), dot.n)
                there = {within: columns.index(column), **dict.fromkeys(blocks, block)}
                there[held.sides["m"]] = rows.index(whole.position("m", 0, element))
                parts.append(tiles.element(statement.value, {**at, **there}))
            value = word_of(tiles.b, parts, statement.out.dtype) if count > 1 else parts[0]
            elements[held.key(statement.out, at, word)] = value
    tiles.values[statement.out.id] = elements


def narrowed(tiles: Tiles, statement: Map) -> bool:
    """Rounds what a lane holds of results two by two, if it holds neighbours and the machine has an
    instruction for that; else it does nothing and says so.
    """
    (value,), out, b = statement.args, statement.out, tiles.b
    op = IN_PAIRS.get(out.dtype)
    if value.dtype is not float32 or op is None or not b.has(op, Type(uint32)):
        return False
    last = out.axes[-1] if out.axes else None
    if last not in tiles.parts or tiles.pieces[last].number % 2:
        return False
    elements: Elements = {}
    places = [*tiles.positions(out.axes)]
    for (one, here), (other, beside) in zip(places[::2], places[1::2], strict=True):
        x, y = tiles.element(value, here), tiles.element(value, beside)
        elements[one], elements[other] = narrowed_pair(b, x, y, out.dtype)
    tiles.values[out.id] = elements
    return True


def folded(tiles: Tiles, axis: Symbol, dtype: DType, value: Operand, fold: Fold) -> Operand:
    """What a lane holds of results, combined over the lanes that hold others along a side."""
    part = tiles.parts[axis]
    for bit, _ in reversed(part.dot.fragment("c").lane_bits(part.side)):
        value = exchanged(tiles, 1 << bit, dtype, value, fold)
    return value


# --- products -------------------------------------------------------------------------------------


def multiply(tiles: Tiles, statement: Contract) -> None:
    """The sums with the products of all blocks added, block by block."""
    out, b, dot = statement.out, tiles.b, statement.dot
    held = [(tile, _Held.of(tiles, tile)) for tile in (statement.a, statement.b)]
    before, results = _Held.of(tiles, statement.acc), _Held.of(tiles, out)
    elements: Elements = {}
    for _, at in tiles.positions(results.outer):
        acc = _registers(tiles, statement.acc, before, at)
        outs = tuple(b.value(Type(out.dtype)) for _ in acc)
        if dot.is_from_memory:
            first = statement.a.id in tiles.left
            a = (_left if first else _registers)(tiles, *held[0], at)
            b.emit(MultiplyLeft(outs, dot, acc, a, _left(tiles, *held[1], at)))
        else:
            x, y = (_registers(tiles, *factor, at) for factor in held)
            scales = tuple(_scale(tiles, tile, at) for tile in statement.scales)
            b.emit(Multiply(outs, dot, acc, x, y, scales))
        for element, value in enumerate(outs):
            elements[results.key(out, at, element)] = value
    tiles.values[out.id] = elements


def begin(tiles: Tiles, statement: boxes.Begin) -> None:
    """A batch of products, and where the scales are that it needs in tensor memory."""
    lifts = (
        Left(lift.buffer, *tiles.index.place(lift.offset, 0), lift.squares * OF_SQUARE, False)
        for lift in statement.lifts
    )
    tiles.b.emit(Begin(tuple(lifts)))


def accumulate(tiles: Tiles, statement: tile_ir.Accumulate) -> None:
    """The products of all blocks, added to columns of tensor memory."""
    held = [(tile, _Held.of(tiles, tile)) for tile in (statement.a, statement.b)]
    start = {axis: ZERO for _, block in held for axis in block.sides.values()}
    adds = tiles.index.condition(statement.adds)
    outer = dict.fromkeys(axis for _, block in held for axis in block.outer)
    for _, at in tiles.positions(outer):
        place = tiles.index.place(*tiles.reach(statement.offset.substitute(start), at))
        a, b = (_left(tiles, *factor, at) for factor in held)
        scales = tuple(_scales_left(tiles, tile, at) for tile in statement.scales)
        tiles.b.emit(Accumulate(statement.buffer, *place, statement.dot, a, b, adds, scales))


def load_sums(tiles: Tiles, statement: Load) -> None:
    """What each lane has of results, from columns of tensor memory."""
    held, b = _Held.of(tiles, statement.out), tiles.b
    offset = statement.offset.substitute(dict.fromkeys(held.sides.values(), ZERO))
    elements: Elements = {}
    for _, at in tiles.positions(held.outer):
        place = tiles.index.place(*tiles.reach(offset, at))
        outs = tuple(b.value(Type(held.dot.accumulator)) for _ in range(held.fragment.elements))
        b.emit(LoadSums(outs, statement.buffer, *place, held.dot))
        for element, out in enumerate(outs):
            elements[held.key(statement.out, at, element)] = out
    tiles.values[statement.out.id] = elements


def tensor_columns(kernel: Kernel) -> int:
    """The columns of tensor memory that a group allocates: a power of two; 0 if there are none."""
    taken = _sum_columns(kernel) + sum(_of_scales(kernel).values())
    return max(LEAST_COLUMNS, 1 << (taken - 1).bit_length()) if taken else 0


def _scales_left(tiles: Tiles, tile: Tile, at: Position) -> Left:
    """Where the scales of a block begin in squares."""
    load = tiles.left[tile.id]
    start = {axis: ZERO for axis in tile.axes if axis in tiles.parts}
    there = {axis: piece for axis, piece in at.items() if axis not in start}
    place = tiles.index.place(*tiles.reach(load.offset.substitute(start), there))
    return Left(load.buffer, *place, OF_SQUARE, False)


def scale_columns(kernel: Kernel) -> dict[str, int]:
    """The first column of tensor memory that mirrors each buffer of scales, behind all sums."""
    columns = _of_scales(kernel)
    firsts = itertools.accumulate(columns.values(), initial=_sum_columns(kernel))
    return dict(zip(columns, firsts, strict=False))


def _of_scales(kernel: Kernel) -> dict[str, int]:
    """How many columns of tensor memory mirror each buffer of scales."""
    begun = (s for s in kernel.statements() if isinstance(s, Begin))
    names = dict.fromkeys(lift.buffer for statement in begun for lift in statement.lifts)
    sizes = {buffer.name: buffer.size.constant for buffer in kernel.shared}
    return {name: sizes[name] // SCALES_OF_COLUMN for name in names}


def _sum_columns(kernel: Kernel) -> int:
    """The columns of tensor memory that sums take; 0 if there are none."""
    for statement in kernel.statements():
        if isinstance(statement, Accumulate | LoadSums):
            (size,) = (buffer.size.constant for buffer in kernel.tensor)
            return int(size // statement.dot.m)
    return 0


def _registers(tiles: Tiles, tile: Tile, held: _Held, at: Position) -> tuple[Operand, ...]:
    """What a lane holds of a block, in order."""
    count = held.fragment.elements
    return tuple(tiles.element(tile, {**at, **held.position(n)}) for n in range(count))


def _left(tiles: Tiles, tile: Tile, held: _Held, at: Position) -> Left:
    """Where a block of a factor that stays in memory begins, and how it lies there."""
    load = tiles.left[tile.id]
    buffer, offset = tiles.buffers[load.buffer], load.offset
    start = dict.fromkeys(held.sides.values(), ZERO)
    # How elements lie to each other is the same for all blocks.
    others = dict.fromkeys(offset.symbols() - start.keys(), ZERO)

    def distance(side: str, count: int) -> int:
        there = offset.substitute({**others, **start, held.sides[side]: const(count)})
        return int(there.constant - offset.substitute({**others, **start}).constant)

    (across,) = held.sides.keys() - {"k"}
    turned = distance("k", 1) != 1
    along, line = across if turned else "k", buffer.swizzle // memory_dtype(buffer.dtype).size
    is_tiled = getattr(held.dot, along) > line
    apart = distance(along, line) if is_tiled else line * 8
    place = tiles.index.place(*tiles.reach(offset.substitute(start), at))
    return Left(load.buffer, *place, apart, turned)

"""The state of expanding one kernel: tiles as grids of values, one for each piece of a tile.

A loop's tile is cut into pieces of `width` neighbours, as wide as the axis is bound to lanes and
the machine has them. A value with tile axes is one expanded value for each combination of pieces:
a vector where a piece of one of its axes is wider than 1, else a scalar.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import NamedTuple

from luminal.base.fragments import Bits
from luminal.base.records import dataclass
from luminal.base.swizzles import PIECE, SWIZZLES
from luminal.expand.builder import Builder, integer
from luminal.expand.extremes import Greatest
from luminal.expand.index import Indexer
from luminal.expand.ir import Operand, memory_dtype
from luminal.kernel.lanes import Lanes, Part, block_of
from luminal.kernel.tile_ir import Buffer, Load, Loop, Tile
from luminal.shape.expression import Expression, Symbol, sum_of_terms

Position = dict[Symbol, int]
"""A piece of each axis."""
Key = tuple[int, ...]
Elements = dict[Key, Operand]


@dataclass(frozen=True, slots=True)
class Row:
    """One of two rows of results, as long as nobody asks for them: lane by lane `both` has those
    of the first, then of the second.
    """

    both: Operand
    number: int

    def value(self, b: Builder) -> Operand:
        """The row without the other."""
        return b.shuffle(self.both, self.both, range(self.number, self.both.type.lanes, 2))


Partial = Operand | Greatest


class Pieces(NamedTuple):
    """How the tile of an axis is cut: `unroll` times into `across` pieces of `width`, or into these
    for each of `lanes`: its run. Of `neighbours` one piece, a word, holds all. Those of a part of a
    block begin at `offsets` from the lane's first one.
    """

    unroll: int
    across: int
    width: int
    lanes: int = 1
    neighbours: int = 1
    offsets: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        return len(self.offsets) or self.unroll * self.across

    def at(self, piece: int) -> int:
        """Where a piece begins, from the lane's first one on."""
        if self.offsets:
            return self.offsets[piece]
        turn, beside = divmod(piece, self.across)
        return (turn * self.across * self.lanes + beside) * self.width * self.neighbours

    @property
    def size(self) -> int:
        return self.number * self.width * self.lanes * self.neighbours


class Digits(NamedTuple):
    """An axis of lanes as `first + lane`, with first a multiple of the step, so that `//` and `%`
    by multiples of the lanes simplify.
    """

    first: Expression
    lane: Symbol


@lru_cache(4096)
def is_divided(expr: Expression, axis: Symbol) -> bool:
    """Does the axis occur under `//` or `%`?"""
    if axis not in expr.symbols():
        return False
    return expr.op in ("floordiv", "mod") or any(is_divided(arg, axis) for arg in expr.args)


@dataclass(slots=True)
class Tiles:
    """What the statements written so far have bound. `most` is the widest piece."""

    b: Builder
    index: Indexer
    buffers: dict[str, Buffer]
    most: int
    pieces: dict[Symbol, Pieces] = field(default_factory=dict)
    values: dict[int, Mapping[Key, Partial | Row]] = field(default_factory=dict)
    active: list[Symbol] = field(default_factory=list)  # tiled axes of the enclosing loops
    live: dict[Symbol, list[Operand]] = field(default_factory=dict)  # of masked tails, by piece
    digits: dict[Symbol, Digits] = field(default_factory=dict)  # of axes of lanes, where divided
    runs: dict[Symbol, Expression] = field(default_factory=dict)  # where they start, likewise
    even: set[Symbol] = field(default_factory=set)  # axes whose runs start at multiples of theirs
    ends: set[Symbol] = field(default_factory=set)  # of runs
    lane: Operand | None = None  # the lane's number, where there are groups
    lanes_in_group: int = 1
    subgroup: int = 1  # lanes that exchange values
    dealt: dict[Symbol, Lanes] = field(default_factory=dict)  # how axes are dealt to lanes
    whole: dict[Symbol, Expression] = field(default_factory=dict)  # tiles are before their stop
    parts: dict[Symbol, Part] = field(default_factory=dict)  # axes that are sides of blocks
    read: set[str] = field(default_factory=set)  # buffers, since lanes have met last
    held: dict[Symbol, str] = field(default_factory=dict)  # the block by which each is dealt now
    left: dict[int, Load] = field(default_factory=dict)  # factors that stay where they are

    def cut(self, loop: Loop) -> Pieces:
        """The pieces of a whole step of a loop."""
        width = min(loop.vector, self.most)
        across = loop.vector // width * loop.lanes.run
        return Pieces(loop.unroll, across, width, loop.lanes.count, loop.neighbours)

    def block(self, axes: Iterable[Symbol]) -> str | None:
        """The block of a dot that a value with these axes is, between the lanes."""
        parts = [self.parts[axis] for axis in axes if axis in self.parts]
        return block_of(parts) if parts else None

    def deal(self, axes: Iterable[Symbol]) -> None:
        """From here on sides of blocks are dealt as those of a value with these axes are: in either
        factor and in the results a lane has other positions.
        """
        axes = [axis for axis in axes if axis in self.parts]
        block = self.block(axes)
        if block is None:
            return
        for axis in axes:
            if self.held.get(axis) != block:
                part = self.parts[axis]
                fragment = part.dot.fragment(block)
                self.pieces[axis] = Pieces(1, 1, 1, offsets=fragment.offsets(part.side))
                self.index.bind(axis, self.bits_of_lane(fragment.lane_bits(part.side)))
                self.held[axis] = block

    def bits_of_lane(self, bits: Bits) -> Operand:
        """What bits of the lane's number are as bits of another one."""
        assert self.lane is not None
        op, total = self.index.op, None
        while bits:
            # Bits that follow each other in both are moved together.
            (source, target), count = bits[0], 1
            while bits[count:] and bits[count] == (source + count, target + count):
                count += 1
            bits = bits[count:]
            part = op("shr", self.lane, source) if source else self.lane
            part = op("and", part, (1 << count) - 1)
            part = op("shl", part, target) if target else part
            total = part if total is None else op("add", total, part)
        return integer(0) if total is None else total

    def digit(self, lanes: Lanes) -> Operand:
        """The lane's place among those that a loop deals its positions to."""
        assert self.lane is not None
        number = self.index.op("shr", self.lane, lanes.stride.bit_length() - 1)
        if lanes.count * lanes.stride == self.lanes_in_group:
            return number
        return self.index.op("and", number, lanes.count - 1)

    def is_first(self, axes: Iterable[Symbol]) -> Operand | None:
        """Is the lane the first of those that hold the same of a value with these axes? None: each
        holds its own.
        """
        # Digits are powers of two, so bits of the lane's number: lanes that differ in others only
        # hold the same.
        axes = tuple(axes)
        dealt = (self.dealt[axis] for axis in axes if axis in self.dealt)
        dealt_bits = sum((lanes.count - 1) * lanes.stride for lanes in dealt)
        block = self.block(axes)
        for axis in axes:
            if block is not None and axis in self.parts:
                held = self.parts[axis].dot.fragment(block).lane_bits(self.parts[axis].side)
                dealt_bits += sum(1 << source for source, _ in held)
        rest = (self.lanes_in_group - 1) & ~dealt_bits
        if not rest:
            return None
        assert self.lane is not None
        return self.index.op("eq", self.index.op("and", self.lane, rest), 0)

    def place(self, name: str, offset: Expression, distance: int) -> tuple[Operand, int]:
        """An address in a buffer, and how far what is meant lies from it."""
        buffer = self.buffers[name]
        if not buffer.swizzle:
            return self.index.place(offset, distance)
        # Places repeat after a period, and pieces stay whole: so what is a multiple of the period,
        # like the number of a block in a ring, is added behind, and elements of a piece share an
        # address.
        swizzle, size = SWIZZLES[buffer.swizzle], memory_dtype(buffer.dtype).size
        period, piece = swizzle.alignment // size, PIECE // size
        distance += offset.constant
        far = tuple(term for term in offset.terms if term[1] % period == 0)
        near = tuple(term for term in offset.terms if term[1] % period)
        beyond = distance // period * period
        is_whole = all(factor % piece == 0 for _, factor in near)
        beyond += distance % piece if is_whole else 0
        op = self.index.op
        straight = self.index.scalar(sum_of_terms(near, distance - beyond))
        moved = op("and", op("shr", straight, 3), (swizzle.width - PIECE) // size)
        address = op("add", op("xor", straight, moved), self.index.scalar(sum_of_terms(far, 0)))
        return address, beyond

    def positions(self, axes: Iterable[Symbol]) -> Iterator[tuple[Key, Position]]:
        """Every combination of pieces, in row-major order."""
        axes = tuple(axes)
        if self.parts:
            self.deal(axes)
        for key in itertools.product(*(range(self.pieces[axis].number) for axis in axes)):
            yield key, dict(zip(axes, key, strict=True))

    def wide_axis(self, axes: Iterable[Symbol]) -> Symbol | None:
        """The axis whose pieces are vectors, if there is one."""
        return next((axis for axis in axes if self.pieces[axis].width > 1), None)

    def near_axis(self, axes: Iterable[Symbol]) -> Symbol | None:
        """The axis along which elements are words of neighbours, if there is one."""
        return next((axis for axis in axes if self.pieces[axis].neighbours > 1), None)

    def lanes(self, axes: Iterable[Symbol]) -> int:
        """How many lanes a value with these axes has."""
        axis = self.wide_axis(axes)
        return 1 if axis is None else self.pieces[axis].width

    def element(self, tile: Tile, position: Position, lanes: int = 1) -> Operand:
        """The tile's value at a position of its axes, or more axes, in as many lanes as asked."""
        value = self.said(self.part(tile, position))
        return self.b.spread(value, lanes) if lanes > 1 else value

    def elements(self, tile: Tile) -> Elements:
        """The tile's value at all positions of its axes."""
        return {key: self.said(value) for key, value in self.values[tile.id].items()}

    def part(self, tile: Tile, position: Position) -> Partial:
        """An element as `element` gives it, or the integers that tell of a float, for who takes
        them.
        """
        value = self.values[tile.id][tuple([position[axis] for axis in tile.axes])]
        return value.value(self.b) if isinstance(value, Row) else value

    def said(self, value: Partial | Row) -> Operand:
        """The value that something else is held for."""
        return value.value(self.b) if isinstance(value, Greatest | Row) else value

    def moved(self, expr: Expression, position: Position) -> Expression:
        """The Expression at a position: each axis's symbol stands for its first piece's start."""
        steps = {
            axis: (self.runs[axis] if self.is_by_runs(expr, axis) else axis)
            + self.pieces[axis].at(piece)
            for axis, piece in position.items()
            if piece or self.is_by_runs(expr, axis)
        }
        return expr.substitute(steps) if steps else expr

    def is_by_runs(self, expr: Expression, axis: Symbol) -> bool:
        """Does the Expression divide an axis whose runs start at multiples of their length?"""
        return axis in self.runs and is_divided(expr, axis)

    def reach(self, offset: Expression, position: Position) -> tuple[Expression, int]:
        """The offset at a position, as one that positions a constant apart share and a distance."""
        distance, others = 0, {}
        for axis, piece in position.items():
            if piece and axis in offset.symbols():
                step = offset.coefficient(axis)
                if step is not None and step.is_const:
                    distance += step.constant * self.pieces[axis].at(piece)
                else:
                    others[axis] = piece
            elif self.is_by_runs(offset, axis):
                others[axis] = piece
        return self.moved(offset, others), distance

    def by_lane(
        self, exprs: Sequence[Expression], wide: Symbol, position: Position
    ) -> tuple[Sequence[Expression], Symbol, Position]:
        """The Expressions, where need be by the digits of the axis at its position, the symbol that
        steps from lane to lane, and the position in which it may still have to be moved.
        """
        digits = self.digits.get(wide)
        if digits is None or not any(is_divided(expr, wide) for expr in exprs):
            return exprs, wide, position
        there = digits.first + self.pieces[wide].at(position[wide]) + digits.lane
        others = {axis: piece for axis, piece in position.items() if axis is not wide}
        return [expr.substitute({wide: there}) for expr in exprs], digits.lane, others

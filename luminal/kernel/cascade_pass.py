"""What every placement of a cascade shares: one pass over blocks of the reduced axes.

    for the grid: other axes of the maximum, blocks of the lane axis i
        m = -inf, sums = 0
        for blocks of t:
            x[t, i]                      what is maximised, with its contraction, by tiles
            m', rescale = f(m, max x)
            e[t, i] = exp(x - m')        with the sums that have no further axes
            o[i, d] = o * rescale + e v  tiles of i and d
        finish and store

All state lies in scratch. Blocks that an index condition rules out are not visited. The running
maximum `r` enters exponents as `r is -inf ? 0 : r`; sums are rescaled by
`r' == r ? 1 : exp(c*(r' - r))`, and in the end by what turns the former into the latter: rows all
masked, inf and NaN come out as they do in two passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import Axes, Term, below
from luminal.dtypes import bool_
from luminal.kernel.cascade import Cascade, Member, masked
from luminal.kernel.evaluate import Env, Placed, Row
from luminal.kernel.group import Group
from luminal.kernel.guards import Range, relaxed_range, strict_range
from luminal.kernel.loops import LoopAxis, accesses, estimate
from luminal.kernel.placement import Placement
from luminal.kernel.schedule import Schedule, TileChoice
from luminal.kernel.tile_ir import Carry, Contract, Map, Reduce, Tile
from luminal.shape.expression import TRUE, Expression, Symbol, ceil_div, const, minimum

SINGLE = TileChoice()


@dataclass(frozen=True, slots=True)
class Blocking:
    """The choices for a cascade: blocks of `lane` (None: there is no such axis) and of the reduced
    axes; register tiles of `rows` by `vectors` of `width` elements.
    """

    lane: Symbol | None
    width: int
    lane_block: int
    step_block: int
    rows: int
    vectors: int

    @property
    def tile(self) -> TileChoice:
        return TileChoice(self.vectors, self.width)


def contiguous(group: Group, term: Term, axis: Symbol) -> bool:
    """Do neighbours along the axis lie side by side, or in one place, wherever `term` reads?"""
    bound = [a for r in group.reductions() for a in r.attrs]
    stored = [a for store in group.stores for a in store.axes]
    loops = tuple(LoopAxis(a, (a,)) for a in dict.fromkeys((*stored, *bound)))
    reads = below((term,), group.reads.__contains__)
    found = (a for a in accesses(group, loops) if a.source in reads)
    return all(access.contiguity(LoopAxis(axis, (axis,))) >= 0 for access in found)


class Pass(Placement):
    """The frame of the pass; subclasses say which axis fills the vectors."""

    lane_tile: TileChoice  # of loops over the lanes alone

    def __init__(self, group: Group, cascade: Cascade, blocking: Blocking) -> None:
        bound = [a for r in cascade.inner for a in r.attrs]
        sequential = tuple(LoopAxis(a, (a,)) for a in dict.fromkeys(bound))
        self.tiles: dict[Symbol, TileChoice] = {}  # of the loops of contractions
        super().__init__(group, Schedule((), (), sequential, (), self.tiles))
        self.cascade = cascade
        self.blocking = blocking
        self.dtype = cascade.maximum.dtype
        (self.x,) = cascade.maximum.args
        self.lane = blocking.lane
        self.lane_axes: Axes = () if self.lane is None else (self.lane,)
        steps = sorted(cascade.maximum.attrs, key=lambda a: estimate(extent_of((a,))))
        self.step = steps[-1]  # the others run outside of its blocks
        self.outer_steps = tuple(steps[:-1])
        self.start: Expression = const(0)  # the block of the lane axis
        self.stop: Expression = const(1)
        self.first: Expression = const(0)  # the block of the step axis
        self.last: Expression = const(0)
        self.free: Range | None = None  # steps in which no lane of the block is masked
        self.maximum = self.row(self.lane_axes)
        self.sums = {m: self.row((*self.lane_axes, *self.extra(m.term))) for m in cascade.members}
        rates = dict.fromkeys((m.base, m.factor) for m in cascade.members)
        self.rescale = {rate: self.row(self.lane_axes) for rate in rates}

    def extra(self, term: Term) -> Axes:
        """The axes of a sum or store beside those of the maximum, in the order of the stores."""
        order = [a for store in self.group.stores for a in store.axes]
        rest = [a for a in term.axes if a not in self.cascade.maximum.axes]
        return tuple(sorted(rest, key=lambda a: (order.index(a) if a in order else -1, a.sort_key)))

    # --- scratch

    def row(self, axes: Axes) -> Row:
        """Scratch over blocks of the lanes and steps and over further whole axes, in this order."""
        sizes = {self.lane: self.blocking.lane_block, self.step: self.blocking.step_block}
        extents = [const(sizes[a]) if a in sizes else extent_of((a,)) for a in axes]
        size = const(1)
        for extent in extents:
            size = size * extent

        def offset(env: Env) -> Expression:
            total, stride = const(0), const(1)
            for a, extent in zip(reversed(axes), reversed(extents), strict=True):
                total = total + (env.values[a] - self.origin(a)) * stride
                stride = stride * extent
            return total

        return Row(self.values.new_scratch(self.dtype, size), offset)

    def origin(self, a: Symbol) -> Expression:
        if a is self.lane:
            return self.start
        return self.first if a is self.step else const(0)

    def read(self, row: Row, env: Env) -> Tile:
        return self.values.load_row(row, env, self.dtype)

    def write(self, row: Row, env: Env, tile: Tile) -> None:
        self.values.store_row(row, env, tile)

    def keep(self, rows: Mapping[Term, Row]) -> None:
        """From here on these terms are read from their rows."""
        for row in rows.values():
            row.ready = True
        self.values.rows.update(rows)

    # --- loops and values

    def open(
        self, a: Symbol, env: Env, tile: TileChoice = SINGLE, within: Range | None = None
    ) -> Env:
        """A loop over the block of the lanes or steps, or over a whole axis."""
        extent = self.values.canonical(extent_of((a,)))
        start, stop = const(0), extent
        if a is self.lane:
            start, stop = self.start, self.stop
        elif a is self.step:
            start, stop = within or (self.first, self.last)
        symbol = self.blocks.fresh_axis(extent)
        self.blocks.open(symbol, start, stop, tile.unroll, tile.vector)
        return env.bind({a: symbol})

    @contextmanager
    def loops(self, axes: Axes, env: Env, tile: TileChoice = SINGLE) -> Iterator[Env]:
        """Loops over all of `axes`, the last one in tiles."""
        for a in axes:
            env = self.open(a, env, tile if a is axes[-1] else SINGLE)
        yield env
        for _ in axes:
            self.blocks.close()

    def apply(self, op: str, *args: Tile) -> Tile:
        return self.values.map(op, args, bool_ if op == "Equal" else self.dtype)

    def number(self, value: float) -> Tile:
        return self.values.constant(value, self.dtype)

    def safe(self, maximum: Tile) -> Tile:
        """The maximum as it enters exponents."""
        lowest = self.number(-np.inf)
        return self.apply("Select", self.apply("Equal", maximum, lowest), self.number(0), maximum)

    def moved(self, rate: tuple[str, float], old: Tile, new: Tile) -> Tile:
        """`new == old ? 1 : exp(c*(new - old))`."""
        base, factor = rate
        difference = self.apply("Add", new, self.apply("Mul", old, self.number(-1)))
        power = self.apply(base, self.apply("Mul", difference, self.number(factor)))
        return self.apply("Select", self.apply("Equal", new, old), self.number(1), power)

    def know(self, term: Term, env: Env, tile: Tile) -> None:
        """From here on, in the innermost loop, `term` is `tile`."""
        self.blocks.stack[-1].known[self.values.key(term, env)] = tile

    def fold(
        self, op: str, inits: Sequence[Tile], values: Sequence[tuple[Tile, ...]]
    ) -> list[Tile]:
        """Closes a loop that folds values (two: their product) into accumulators.

        Where it goes in tiles, there is one of these per position; they are folded after it.
        """
        depth = self.blocks.depth
        loop = self.blocks.stack[-1].loop
        assert loop is not None
        carries = []
        for init, value in zip(inits, values, strict=True):
            axes = {a for tile in (init, *value) for a in tile.axes}
            inner, after = (self.blocks.new(axes, self.dtype, depth) for _ in range(2))
            if len(value) == 2:
                self.blocks.put(Contract(after, inner, *value), depth)
            else:
                self.blocks.put(Map(after, op, (inner, *value)), depth)
            result = self.blocks.new(axes, self.dtype, depth - 1)
            carries.append(Carry(result, init, inner, after))
        self.blocks.close(tuple(carries))
        return [self.folded(op, loop[0], carry.result) for carry in carries]

    def folded(self, op: str, axis: Symbol, parts: Tile) -> Tile:
        if axis not in parts.axes:
            return parts
        whole = self.blocks.new(set(parts.axes) - {axis}, self.dtype, self.blocks.depth)
        self.blocks.put(Reduce(whole, op, parts, axis), self.blocks.depth)
        return whole

    # --- the kernel

    def run(self) -> Placed:
        env = self.grid_env()
        self.begin(env)
        self.prepare(env)
        env = self.blocks_of_steps(env)
        self.maximise(env)
        self.move_maximum(env)
        self.exponentiate(env)
        for member in self.cascade.members:
            if self.extra(member.term):
                self.accumulate_tiles(member, env)
        for _ in (self.step, *self.outer_steps):
            self.blocks.close()
        self.finish(env)
        return self.values.finish()

    def prepare(self, env: Env) -> None:
        """What is done once, before the pass."""

    def maximise(self, env: Env) -> None:
        """x over the block, to scratch."""
        raise NotImplementedError

    def move_maximum(self, env: Env) -> None:
        """The new maximum, and what the move multiplies sums by."""
        raise NotImplementedError

    def exponentiate(self, env: Env) -> None:
        """The exponentials of the block, to scratch, and the sums without further axes."""
        raise NotImplementedError

    def grid_env(self) -> Env:
        """One grid axis per axis of the maximum; the lanes in blocks."""
        values: dict[Symbol, Expression] = {}
        order = [a for a in self.group.stores[0].axes if a in self.cascade.maximum.axes]
        for a in order:
            extent = extent_of((a,))
            if a is not self.lane:
                values[a] = self.values.grid_axis(extent)
                continue
            size = self.blocking.lane_block
            block = self.values.grid_axis(ceil_div(extent, size))
            self.start = block * size
            self.stop = minimum(self.start + size, self.values.canonical(extent))
        return Env(values)

    def begin(self, env: Env) -> None:
        """No maximum yet, all sums empty."""
        with self.loops(self.lane_axes, env, self.lane_tile) as inside:
            self.write(self.maximum, inside, self.number(-np.inf))
            for member, row in self.sums.items():
                if not self.extra(member.term):
                    self.write(row, inside, self.number(0))
        for member, row in self.sums.items():
            axes = self.extra(member.term)
            if axes:
                with self.loops((*self.lane_axes, *axes), env, self.blocking.tile) as inside:
                    self.write(row, inside, self.number(0))

    def blocks_of_steps(self, env: Env) -> Env:
        """Opens the loops over blocks of steps: those in which some lane has something to do."""
        for a in self.outer_steps:
            env = self.open(a, env)
        extent = self.values.canonical(extent_of((self.step,)))
        low, high = self.visited(env, extent)
        size = self.blocking.step_block
        number = self.blocks.fresh_axis(ceil_div(extent, size))
        self.blocks.open(number, const(0), ceil_div(high - low, size))
        self.first = low + number * size
        self.last = minimum(self.first + size, high)
        return env

    def visited(self, env: Env, extent: Expression) -> Range:
        """The steps outside of which all lanes are masked, in whole rows; also sets `free`."""
        condition, _ = masked(self.cascade.maximum)
        if condition is TRUE or not all(m.vanishes for m in self.cascade.members):
            return const(0), extent
        condition = self.values.canonical(condition.substitute(env.values))
        box = {} if self.lane is None else {self.lane: (self.start, self.stop - 1)}
        self.free = strict_range(condition, self.step, extent, box)
        low, high = relaxed_range(condition, self.step, extent, box)
        rows = self.blocking.rows
        return low // rows * rows, minimum(ceil_div(high, rows) * rows, extent)

    def exponentials(self) -> list[Term]:
        """The exponentials of the sums that use the maximum."""
        found: dict[Term, None] = {}
        is_read = self.group.reads.__contains__
        for member in self.cascade.members:
            for term in below(member.term.args, is_read):
                mine = term.op == member.base and self.cascade.maximum in below((term,), is_read)
                if mine and not term.axes.isdisjoint((self.step, *self.outer_steps)):
                    found[term] = None
        return list(found)

    def exponential_rows(self, x: Row, axes: Axes) -> dict[Term, Row]:
        """Where the exponentials go: the first in the place of x, where that is not needed."""
        found = self.exponentials()
        is_read = self.group.reads.__contains__
        factors = [m.term.args[0] for m in self.cascade.members if self.extra(m.term)]
        later = below(factors, lambda t: t in found or is_read(t))
        rows = {e: self.row(axes) for e in found[1:]}
        return {found[0]: self.row(axes) if self.x in later else x, **rows}

    def kept(self) -> list[Term]:
        """Contractions that the sums need beside x."""
        is_read = self.group.reads.__contains__
        factors = [m.term.args[0] for m in self.cascade.members]
        seen = below(factors, lambda t: t in (self.x, self.cascade.maximum) or is_read(t))
        return [r for r in self.cascade.inner if r in seen]

    def accumulate_tiles(self, member: Member, env: Env) -> None:
        """A sum with further axes: tiles of lanes by its last axis."""
        axes = self.extra(member.term)
        for a in axes[:-1]:
            env = self.open(a, env)
        env = self.open(axes[-1], env, self.blocking.tile)
        rows = TileChoice(self.blocking.rows)
        with self.loops(self.lane_axes, env, rows) as inside:
            factor = self.read(self.rescale[member.base, member.factor], inside)
            init = self.apply("Mul", self.read(self.sums[member], inside), factor)
            steps = self.open(self.step, inside)
            values = self.operands(member.term, member.term.args[0], steps)
            (total,) = self.fold("Add", [init], [values])
            self.write(self.sums[member], inside, total)
        for _ in axes:
            self.blocks.close()

    def finish(self, env: Env) -> None:
        """The last rescaling, and the stores."""
        for store in self.group.stores:
            axes = tuple(a for a in store.axes if a not in self.cascade.maximum.axes)
            with self.loops(self.lane_axes, env, SINGLE if axes else self.lane_tile) as lanes:
                maximum = self.read(self.maximum, lanes)
                safe = self.safe(maximum)
                last = {rate: self.moved(rate, safe, maximum) for rate in self.rescale}
                with self.loops(axes, lanes, self.blocking.tile) as inside:
                    self.know(self.cascade.maximum, inside, maximum)
                    for member, row in self.sums.items():
                        if member.term.axes <= inside.values.keys():
                            rate = last[member.base, member.factor]
                            value = self.apply("Mul", self.read(row, inside), rate)
                            self.know(member.term, inside, value)
                    value = self.values.evaluate(store.term, inside)
                    offset = store.offset(inside.values)
                    self.values.store(store.place, offset, value, TRUE, add=False)

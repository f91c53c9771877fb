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

from abc import ABC, abstractmethod
from collections.abc import Mapping

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import Axes, Term, below
from luminal.hlir.monoid import MAXIMUM, SUM
from luminal.kernel.cascade import Member
from luminal.kernel.cascade_work import SINGLE, Workspace
from luminal.kernel.evaluate import Env, Placed, Row
from luminal.kernel.guards import Box, Range, relaxed_range, strict_range
from luminal.kernel.schedule import TileChoice
from luminal.kernel.tile_ir import Tile
from luminal.shape.expression import TRUE, Expression, Symbol, ceil_div, const, maximum, minimum


class Pass(Workspace, ABC):
    """The frame of the pass; subclasses say which axis fills the vectors."""

    lane_tile: TileChoice  # of loops over the lanes alone

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

    @abstractmethod
    def maximise(self, env: Env) -> None:
        """x over the block, to scratch."""

    @abstractmethod
    def move_maximum(self, env: Env) -> None:
        """The new maximum, and what the move multiplies sums by."""

    @abstractmethod
    def exponentiate(self, env: Env) -> None:
        """The exponentials of the block, to scratch, and the sums without further axes."""

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
            self.write(self.maximum, inside, self.values.identity(MAXIMUM, self.dtype))
            for member, row in self.sums.items():
                if not self.extra(member.term):
                    self.write(row, inside, self.values.identity(SUM, self.dtype))
        for member, row in self.sums.items():
            axes = self.extra(member.term)
            if axes:
                with self.loops((*self.lane_axes, *axes), env, self.blocking.tile) as inside:
                    self.write(row, inside, self.values.identity(SUM, self.dtype))

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
        """The steps outside of which all lanes are masked, in whole rows; also sets `free`.

        Sums have nothing there either: their exponents grow with what is maximised, which is -inf.
        """
        if self.mask is TRUE:
            return const(0), extent
        lanes = self.start, self.stop - 1
        condition = self.values.canonical(self.mask.substitute(env.values))
        self.free = strict_range(condition, self.step, extent, self.box(lanes))
        low, high = self.seen(env, lanes)
        rows = self.blocking.rows
        return low // rows * rows, minimum(ceil_div(high, rows) * rows, extent)

    def seen(self, env: Env, lanes: Range) -> Range:
        """The steps outside of which the lanes from first to last are masked."""
        condition = self.values.canonical(self.mask.substitute(env.values))
        extent = self.values.canonical(extent_of((self.step,)))
        return relaxed_range(condition, self.step, extent, self.box(lanes))

    def box(self, lanes: Range) -> Box:
        return {} if self.lane is None else {self.lane: lanes}

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
        """A sum with further axes: tiles of lanes by its last axis, each over its own steps."""
        axes = self.extra(member.term)
        for a in axes[:-1]:
            env = self.open(a, env)
        env = self.open(axes[-1], env, self.blocking.tile)
        opened = self.blocks.depth
        rows, within = self.rows_of_lanes(env)
        with self.loops(self.lane_axes, env, TileChoice(self.blocking.rows), rows) as inside:
            factor = self.read(self.rescale[member.base, member.factor], inside)
            init = self.apply("Mul", self.read(self.sums[member], inside), factor)
            steps = self.open(self.step, inside, within=within)
            values = self.operands(member.term, member.term.args[0], steps)
            (total,) = self.fold(SUM, [init], [values])
            self.write(self.sums[member], inside, total)
        for _ in range(self.blocks.depth - opened + len(axes)):
            self.blocks.close()

    def rows_of_lanes(self, env: Env) -> tuple[Range | None, Range | None]:
        """Where some steps are masked: opens a loop over tiles of lanes, and gives the lanes of one
        and the steps of the block in which they are not all masked.
        """
        if self.free is None or self.lane is None:
            return None, None
        rows = self.blocking.rows
        tiles = ceil_div(self.stop - self.start, rows)
        number = self.blocks.fresh_axis(tiles)
        self.blocks.open(number, const(0), tiles)
        start = self.start + number * rows
        stop = minimum(start + rows, self.stop)
        low, high = self.seen(env, (start, stop - 1))
        return (start, stop), (maximum(self.first, low), minimum(self.last, high))

    def finish(self, env: Env) -> None:
        """The last rescaling, and the stores."""
        for store in self.group.stores:
            axes = tuple(a for a in store.axes if a not in self.cascade.maximum.axes)
            with self.loops(self.lane_axes, env, SINGLE if axes else self.lane_tile) as lanes:
                maximum = self.read(self.maximum, lanes)
                safe = self.safe(maximum)
                last = {rate: self.moved(rate, safe, maximum) for rate in self.rescale}
                self.know(self.cascade.maximum, lanes, maximum)
                self.know_sums(lanes, last)
                with self.loops(axes, lanes, self.blocking.tile) as inside:
                    self.know_sums(inside, last)
                    value = self.values.evaluate(store.term, inside)
                    offset = store.offset(inside.values)
                    self.values.store(store.place, offset, value, TRUE, add=False)

    def know_sums(self, env: Env, last: Mapping[tuple[str, float], Tile]) -> None:
        """Sums in their last scale, as soon as all their axes are bound."""
        for member, row in self.sums.items():
            if not member.term.axes <= env.values.keys():
                continue
            if self.blocks.find(self.values.key(member.term, env)) is None:
                value = self.apply("Mul", self.read(row, env), last[member.base, member.factor])
                self.know(member.term, env, value)

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

from collections.abc import Mapping
from typing import Protocol

from luminal.algebra.frames import extent_of
from luminal.hlir.monoid import MAXIMUM, SUM
from luminal.kernel.cascade import Member
from luminal.kernel.cascade_work import Workspace
from luminal.kernel.evaluate import Env, Placed
from luminal.kernel.guards import Box, Range, relaxed_range, strict_range
from luminal.kernel.schedule import TileChoice
from luminal.kernel.tile_ir import Tile
from luminal.shape.expression import TRUE, Expression, Symbol, ceil_div, const, maximum, minimum


class Along(Protocol):
    """The parts of a pass that depend on the axis which fills the vectors."""

    lane_tile: TileChoice  # of loops over the lanes alone

    def prepare(self, env: Env) -> None:
        """What is done once, before the pass."""

    def maximise(self, env: Env) -> None:
        """x over the block, to scratch."""

    def move_maximum(self, env: Env) -> None:
        """The new maximum, and what the move multiplies sums by."""

    def exponentiate(self, env: Env) -> None:
        """The exponentials of the block, to scratch, and the sums without further axes."""


class Pass:
    """The pass over the blocks of a workspace."""

    def __init__(self, work: Workspace, along: Along) -> None:
        self.work = work
        self.along = along

    def run(self) -> Placed:
        work, along = self.work, self.along
        env = self.grid_env()
        self.begin(env)
        along.prepare(env)
        env = self.blocks_of_steps(env)
        along.maximise(env)
        along.move_maximum(env)
        along.exponentiate(env)
        for member in work.cascade.members:
            if work.extra(member.term):
                self.accumulate_tiles(member, env)
        for _ in (work.step, *work.outer_steps):
            work.blocks.close()
        self.finish(env)
        return work.values.finish()

    def grid_env(self) -> Env:
        """One grid axis per axis of the maximum; the lanes in blocks."""
        work = self.work
        values: dict[Symbol, Expression] = {}
        order = [a for a in work.group.stores[0].axes if a in work.cascade.maximum.axes]
        for a in order:
            extent = extent_of((a,))
            if a is not work.lane:
                values[a] = work.values.grid_axis(extent)
                continue
            size = work.blocking.lane_block
            block = work.values.grid_axis(ceil_div(extent, size))
            work.start = block * size
            work.stop = minimum(work.start + size, work.values.canonical(extent))
        return Env(values)

    def begin(self, env: Env) -> None:
        """No maximum yet, all sums empty."""
        work = self.work
        with work.loops(work.lane_axes, env, self.along.lane_tile) as inside:
            work.write(work.maximum, inside, work.arithmetic.identity(MAXIMUM))
            for member, row in work.sums.items():
                if not work.extra(member.term):
                    work.write(row, inside, work.arithmetic.identity(SUM))
        for member, row in work.sums.items():
            axes = work.extra(member.term)
            if axes:
                with work.loops((*work.lane_axes, *axes), env, work.blocking.tile) as inside:
                    work.write(row, inside, work.arithmetic.identity(SUM))

    def blocks_of_steps(self, env: Env) -> Env:
        """Opens the loops over blocks of steps: those in which some lane has something to do."""
        work = self.work
        # State is not begun anew in these: the pass goes on from one to the next.
        for a in work.outer_steps:
            env = work.open(a, env)
        extent = work.values.canonical(extent_of((work.step,)))
        # Blocks begin at the first visited step, so a window that slides along costs as many blocks
        # at its end as at its start.
        low, high = self.visited(env, extent)
        size = work.blocking.step_block
        number = work.blocks.fresh_axis(ceil_div(extent, size))
        work.blocks.open(number, const(0), ceil_div(high - low, size))
        work.first = low + number * size
        work.last = minimum(work.first + size, high)
        return env

    def visited(self, env: Env, extent: Expression) -> Range:
        """The steps outside of which all lanes are masked, in whole rows; also sets `free`.

        Sums have nothing there either: their exponents grow with what is maximised, which is -inf.
        """
        work = self.work
        if work.mask is TRUE:
            return const(0), extent
        lanes = work.start, work.stop - 1
        condition = work.values.canonical(work.mask.substitute(env.values))
        work.free = strict_range(condition, work.step, extent, self.box(lanes))
        # Whole register tiles of steps: what they take in besides is masked as any masked step is.
        low, high = self.seen(env, lanes)
        rows = work.blocking.row_tile.size
        return low // rows * rows, minimum(ceil_div(high, rows) * rows, extent)

    def seen(self, env: Env, lanes: Range) -> Range:
        """The steps outside of which the lanes from first to last are masked."""
        work = self.work
        condition = work.values.canonical(work.mask.substitute(env.values))
        extent = work.values.canonical(extent_of((work.step,)))
        return relaxed_range(condition, work.step, extent, self.box(lanes))

    def box(self, lanes: Range) -> Box:
        return {} if self.work.lane is None else {self.work.lane: lanes}

    def accumulate_tiles(self, member: Member, env: Env) -> None:
        """A sum with further axes: tiles of lanes by its last axis, each over its own steps."""
        work = self.work
        axes = work.extra(member.term)
        for a in axes[:-1]:
            env = work.open(a, env)
        env = work.open(axes[-1], env, work.blocking.tile)
        opened = work.blocks.depth
        rows, within = self.rows_of_lanes(env)
        with work.loops(work.lane_axes, env, work.blocking.row_tile, rows) as inside:
            init = work.rescaled(member, inside)
            # Exponentials of masked steps are 0: leaving them out changes nothing but the time.
            steps = work.open(work.step, inside, within=within)
            values = work.stages.operands(member.term, member.term.args[0], steps)
            (total,) = work.arithmetic.fold(SUM, [init], [values])
            work.write(work.sums[member], inside, total)
        for _ in range(work.blocks.depth - opened + len(axes)):
            work.blocks.close()

    def rows_of_lanes(self, env: Env) -> tuple[Range | None, Range | None]:
        """Where some steps are masked: opens a loop over tiles of lanes, and gives the lanes of one
        and the steps of the block in which they are not all masked.
        """
        work = self.work
        if work.free is None or work.lane is None:
            return None, None
        rows = work.blocking.row_tile.size
        # Fewer lanes at a time have more steps that none of them sees.
        tiles = ceil_div(work.stop - work.start, rows)
        number = work.blocks.fresh_axis(tiles)
        work.blocks.open(number, const(0), tiles)
        start = work.start + number * rows
        stop = minimum(start + rows, work.stop)
        low, high = self.seen(env, (start, stop - 1))
        return (start, stop), (maximum(work.first, low), minimum(work.last, high))

    def finish(self, env: Env) -> None:
        """The last rescaling, and the stores."""
        work = self.work
        for store in work.group.stores:
            axes = tuple(a for a in store.axes if a not in work.cascade.maximum.axes)
            tile = work.blocking.row if axes else self.along.lane_tile
            with work.loops(work.lane_axes, env, tile) as lanes:
                maximum = work.read(work.maximum, lanes)
                safe = work.arithmetic.safe(maximum)
                # A row that is all masked has sums 0 under the safe maximum 0; under its own, -inf,
                # they are 0 * inf, which is the NaN of two passes.
                last = {rate: work.arithmetic.moved(rate, safe, maximum) for rate in work.rescale}
                work.know(work.cascade.maximum, lanes, maximum)
                self.know_sums(lanes, last)
                with work.loops(axes, lanes, work.blocking.tile) as inside:
                    self.know_sums(inside, last)
                    value = work.values.evaluate(store.term, inside)
                    offset = store.offset(inside.values)
                    work.values.store(store.place, offset, value, TRUE, add=False)

    def know_sums(self, env: Env, last: Mapping[tuple[str, float], Tile]) -> None:
        """Sums in their last scale, as soon as all their axes are bound."""
        work = self.work
        for member, row in work.sums.items():
            if not member.term.axes <= env.values.keys():
                continue
            if work.blocks.find(work.values.key(member.term, env)) is None:
                factor = last[member.base, member.factor]
                value = work.arithmetic.apply("Mul", work.read(row, env), factor)
                work.know(member.term, env, value)

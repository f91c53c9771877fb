"""What every placement of a cascade shares: sweeps over blocks of the reduced axes.

    for the grid: other axes of the rows, blocks of the lane axis i
        for each sweep:
            m = -inf, sums = 0
            for blocks of t:
                x[t, i]                      what is reduced, with its contraction, by tiles
                m', rescale = f(m, max x)
                e[t, i] = exp(x - m')        with the reductions that have no further axes
                o[i, d] = o * rescale + e v  tiles of i and d
        finish and store

All state lies in scratch. Blocks that an index condition rules out are not visited. A running
maximum `r` that sums follow enters exponents as `r is -inf ? 0 : r`; sums are rescaled by
`r' == r ? 1 : exp(c*(r' - r))`, and in the end by what turns the former into the latter: rows all
masked, inf and NaN come out as they do in two passes. Without such a maximum nothing is rescaled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import Reduction
from luminal.kernel.cascade import Member, Rate
from luminal.kernel.cascade_sweep import Sweep
from luminal.kernel.cascade_work import Workspace, is_contiguous
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Store
from luminal.kernel.guards import (
    Box,
    Range,
    alternatives,
    are_empty,
    hull,
    relaxed_range,
    strict_range,
)
from luminal.kernel.schedule import Stage, TileChoice
from luminal.kernel.tile_ir import Tile
from luminal.shape.expression import TRUE, Expression, Symbol, ceil_div, const, maximum, minimum


class Along(Protocol):
    """The parts of a pass that depend on the axis which fills the vectors."""

    lane_tile: TileChoice  # of loops over the lanes alone

    def prepare(self, env: Env) -> None:
        """What is done once, before the pass."""

    def hold(self, sweep: Sweep, env: Env) -> None:
        """What the sweep needs of a block, with its contractions, to scratch."""

    def move_maximum(self, maximum: Reduction, env: Env) -> None:
        """The new maximum, and what the move multiplies sums by."""

    def fold(self, sweep: Sweep, env: Env) -> None:
        """The exponentials of the block, to scratch, and what has no further axes."""


# State lies in scratch, which is the first two caches, and each part of a block is a small loop
# nest of its own over it. Keeping accumulators in registers across parts would save little, and
# would tie the tiles of the two products together, which want different shapes.
class Pass:
    """The pass over the blocks of a workspace."""

    def __init__(self, work: Workspace, along: Along) -> None:
        self.work = work
        self.along = along
        is_read = work.fused.reads.__contains__
        self.sweeps = [Sweep(work.cascade, n, is_read) for n in range(work.cascade.sweeps)]
        # Sweeps of other masks do not visit the same steps.
        if work.tiling.keeps and len({sweep.mask for sweep in self.sweeps}) == 1:
            times = Counter(r for sweep in self.sweeps for r in sweep.needed())
            work.kept = frozenset(r for r in times if times[r] > 1)

    def run(self) -> Placed:
        work = self.work
        env = self.grid_env()
        for sweep in self.sweeps:
            self.begin(sweep, env)
            if sweep.number == 0:
                self.along.prepare(env)
            self.walk(sweep, env)
            if sweep is not self.sweeps[-1]:
                self.settle(sweep, env)
        self.finish(self.sweeps[-1], env)
        return work.values.finish()

    def walk(self, sweep: Sweep, env: Env) -> None:
        """One sweep over the blocks of steps."""
        work, along = self.work, self.along
        before, outside = {*work.values.staged}, work.blocks.depth
        inside = self.blocks_of_steps(sweep, env)
        along.hold(sweep, inside)
        for greatest in sweep.maxima:
            along.move_maximum(greatest, inside)
        along.fold(sweep, inside)
        for member in sweep.wide:
            self.turn_factors(member.term, inside)
            self.accumulate_tiles(member, inside)
        while work.blocks.depth > outside:
            work.blocks.close()
        work.forget(work.values.staged.keys() - before - work.kept)

    def grid_env(self) -> Env:
        """One grid axis per axis of the rows; the lanes in blocks."""
        work = self.work
        values: dict[Symbol, Expression] = {}
        order = [a for a in work.fused.stores[0].axes if a in work.cascade.rows]
        for a in order:
            extent = extent_of((a,))
            if a is not work.lane:
                values[a] = work.values.grid_axis(extent)
                continue
            size = work.tiling.lane_block
            block = work.values.grid_axis(ceil_div(extent, size))
            work.start = block * size
            work.stop = minimum(work.start + size, work.values.canonical(extent))
        return Env(values)

    def begin(self, sweep: Sweep, env: Env) -> None:
        """No maximum yet, all sums empty."""
        work = self.work
        plain = [m for m in sweep.members if m not in sweep.wide]
        if plain:
            with work.loops(work.lane_axes, env, self.along.lane_tile) as inside:
                for member in plain:
                    self.empty(member, inside)
        for member in sweep.wide:
            axes = (*work.lane_axes, *work.extra(member.term))
            with work.loops(axes, env, work.tiling.tile) as inside:
                self.empty(member, inside)

    def empty(self, member: Member, env: Env) -> None:
        nothing = self.work.values.identity(member.term.monoid, member.term.dtype)
        self.work.write(self.work.state[member.term], env, nothing)

    def blocks_of_steps(self, sweep: Sweep, env: Env) -> Env:
        """Opens the loops over blocks of steps: those in which some lane has something to do."""
        work = self.work
        # State is not begun anew in these: the pass goes on from one to the next.
        for a in work.outer_steps:
            env = work.open(a, env)
        extent = work.values.canonical(extent_of((work.step,)))
        # Blocks begin at the first visited step, so a window that slides along costs as many blocks
        # at its end as at its start.
        low, high = self.visited(sweep.mask, env, extent)
        size = work.tiling.step_block
        number = work.blocks.fresh_axis(ceil_div(extent, size))
        work.blocks.open(number, const(0), ceil_div(high - low, size))
        work.first = low + number * size
        work.last = minimum(work.first + size, high)
        self.skip_gaps(env, low)
        return env

    def skip_gaps(self, env: Env, begin: Expression) -> None:
        """Opens a loop that runs once where the block has some step to visit, else not at all, if
        what is visited from `begin` on has gaps (a window, and the first few).
        """
        work = self.work
        spans = [] if work.mask is TRUE else self.spans(env, (work.start, work.stop - 1))
        if len(spans) < 2:
            return
        some = are_empty(spans) * (work.first <= begin)  # then the first block makes it NaN
        for low, high in spans:
            some = maximum(some, minimum(work.last, high) - maximum(work.first, low))
        work.blocks.open(work.blocks.fresh_axis(const(1)), const(0), minimum(some, 1))

    def visited(self, mask: Expression, env: Env, extent: Expression) -> Range:
        """The steps outside of which all lanes are masked, in whole rows; also sets `free`.

        One at least, where there are any: what a mask leaves out is 0 over the sum of its row, and
        in a row that has nothing else the sum is 0 too, so that one such step makes it NaN.
        """
        work = self.work
        work.mask, work.free = mask, None
        if mask is TRUE:
            return const(0), extent
        lanes = work.start, work.stop - 1
        condition = work.values.canonical(mask.substitute(env.values))
        work.free = strict_range(condition, work.step, extent, self.box(lanes))
        # Whole register tiles of steps: what they take in besides is masked as any masked step is.
        low, high = hull(self.spans(env, lanes))
        low = maximum(minimum(low, extent - 1), 0)
        high = maximum(high, low + 1)
        rows = work.tiling.row_tile.size
        return low // rows * rows, minimum(ceil_div(high, rows) * rows, extent)

    def spans(self, env: Env, lanes: Range) -> list[Range]:
        """Ranges of steps outside of which the lanes from first to last are masked."""
        work = self.work
        condition = work.values.canonical(work.mask.substitute(env.values))
        extent = work.values.canonical(extent_of((work.step,)))
        box = self.box(lanes)
        return [relaxed_range(c, work.step, extent, box) for c in alternatives(condition)]

    def box(self, lanes: Range) -> Box:
        return {} if self.work.lane is None else {self.work.lane: lanes}

    # Gathers took five times as long as a copy in squares (values given as [d, j], 2048 positions
    # of 64).
    def turn_factors(self, term: Reduction, env: Env) -> None:
        """Copies what is multiplied with a block and lies along the steps, in squares that are
        transposed in registers, to lie along the last further axis: for vectors of lanes to share.
        """
        work = self.work
        width = work.tiling.width
        along = work.extra(term)[-1]
        if work.tiling.lane_block < width or width == 1 or term.args[0].op != "Mul":
            return
        for factor in term.args[0].args:
            turned = not is_contiguous(work.fused, factor, along)
            if along not in factor.axes or factor in work.values.staged or not turned:
                continue
            axes = tuple(a for a in (work.step, *work.extra(term)) if a in factor.axes)
            if axes[0] is not work.step or not is_contiguous(work.fused, factor, work.step):
                continue
            columns = work.tiled(axes[1:], TileChoice(1, width))
            fill = (*columns, (work.step, TileChoice(width)))
            work.stage(Stage(factor, work.step, axes, fill), env)

    def accumulate_tiles(self, member: Member, env: Env) -> None:
        """A result with further axes: tiles of lanes by its last axis, each over its own steps."""
        work, term = self.work, member.term
        with work.loops(work.extra(term), env, work.tiling.tile) as further:
            rows, within = self.rows_of_lanes(further)
            with work.loops(work.lane_axes, further, work.tiling.row_tile, rows) as inside:
                init = work.rescaled(member, inside)
                # What masked steps add is nothing: leaving them out changes nothing but the time.
                steps = work.open(work.step, inside, within=within)
                values = work.reductions.operands(term, term.args[0], steps)
                (total,) = work.arithmetic.fold([(term.monoid, init)], [values])
                work.write(work.state[term], inside, total)

    def rows_of_lanes(self, env: Env) -> tuple[Range | None, Range | None]:
        """Opens a loop over tiles of lanes, if some steps are masked; gives the lanes of one and
        the steps of the block in which they are not all masked.
        """
        work = self.work
        if work.free is None or work.lane is None:
            return None, None
        rows = work.tiling.row_tile.size
        # Fewer lanes at a time have more steps that none of them sees.
        tiles = ceil_div(work.stop - work.start, rows)
        number = work.blocks.fresh_axis(tiles)
        work.blocks.open(number, const(0), tiles)
        start = work.start + number * rows
        stop = minimum(start + rows, work.stop)
        spans = self.spans(env, (start, stop - 1))
        nothing = are_empty(spans)
        low, high = hull(spans)
        low, high = maximum(work.first, low), minimum(work.last, high)
        # Lanes that see nothing have the first step of each block.
        low = minimum(low, work.first + (1 - nothing) * work.tiling.step_block)
        return (start, stop), (low, maximum(high, (work.first + 1) * nothing))

    def settle(self, sweep: Sweep, env: Env) -> None:
        """The last rescaling of what the next sweep reads."""
        work = self.work
        for member in sweep.members if sweep.rates else ():
            axes = work.extra(member.term)
            tile = work.tiling.tile if axes else self.along.lane_tile
            if member.rate is not None:
                with work.loops((*work.lane_axes, *axes), env, tile) as inside:
                    last = self.last_moves(sweep, inside)
                    work.write(work.state[member.term], inside, self.result(member, last, inside))
        work.keep({m.term: work.state[m.term] for m in sweep.members})

    def finish(self, sweep: Sweep, env: Env) -> None:
        """The last rescaling of the last sweep, and the stores, those over the same axes in one
        loop nest: one may overwrite a State where it lies, which others read (`program/in_place`).
        """
        work = self.work
        together: dict[frozenset[Symbol], list[Store]] = {}
        for store in work.fused.stores:
            together.setdefault(frozenset(store.axes), []).append(store)
        for stores in together.values():
            axes = tuple(a for a in stores[0].axes if a not in work.cascade.rows)
            tile = work.tiling.row if axes else self.along.lane_tile
            with work.loops(work.lane_axes, env, tile) as lanes:
                last = self.last_moves(sweep, lanes)
                self.know_results(sweep, lanes, last)
                with work.loops(axes, lanes, work.tiling.tile) as inside:
                    self.know_results(sweep, inside, last)
                    for store in stores:
                        value = work.values.evaluate(store.term, inside)
                        offset = store.offset(inside.values)
                        work.values.store(store.place, offset, value, TRUE, add=False)

    def last_moves(self, sweep: Sweep, env: Env) -> dict[Rate, Tile]:
        """What turns sums under safe maxima into those under the maxima; these are known then."""
        work = self.work
        moves: dict[Rate, Tile] = {}
        for greatest in sweep.maxima:
            value = work.read(work.state[greatest], env)
            safe = work.arithmetic.safe(value)
            # A row that is all masked has sums 0 under the safe maximum 0; under its own, -inf,
            # they are 0 * inf, which is the NaN of two passes.
            for rate in sweep.rates:
                if rate.maximum is greatest:
                    moves[rate] = work.arithmetic.moved(rate, safe, value)
            work.know(greatest, env, value)
        return moves

    def result(self, member: Member, last: Mapping[Rate, Tile], env: Env) -> Tile:
        """A result in its last scale."""
        value = self.work.read(self.work.state[member.term], env)
        if member.rate is None:
            return value
        return self.work.arithmetic.apply("Mul", value, last[member.rate])

    def know_results(self, sweep: Sweep, env: Env, last: Mapping[Rate, Tile]) -> None:
        """Makes the results of the last sweep known, each as soon as all its axes are bound."""
        work = self.work
        for member in sweep.members:
            term = member.term
            bound = term.axes <= env.values.keys()
            if bound and work.blocks.find(work.values.key(term, env)) is None:
                work.know(term, env, self.result(member, last, env))

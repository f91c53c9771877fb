"""Factors of contractions, packed into strips for a tile of columns.

The axis of the columns is walked by two loops: over its tiles, and inside of a tile. In between
each factor is copied into a strip, which all rows then read.

A strip is worth its copy where the factor, read as it lies, would be slow: its columns are no
vectors, its lines meet in few sets of a cache, or an element is computed (a cast, a window's mask)
and would be again for every tile of rows. Transposed packing, from memory that lies along the sum
to vectors of columns, goes through squares in registers, since gathers take a load for each lane.
"""

from __future__ import annotations

from functools import partial

from luminal.algebra.frames import linear
from luminal.kernel.dimensions import Dimension
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.grid_loops import GridLoops
from luminal.kernel.guards import Range
from luminal.kernel.loops import LoopAxis
from luminal.kernel.reductions import Reductions
from luminal.kernel.schedule import RowRuns, Schedule, Stage, TileChoice
from luminal.kernel.staged import Staged
from luminal.kernel.staging import Staging, Walk
from luminal.kernel.tile_ir import Role
from luminal.shape.expression import Expression, Symbol, const, minimum, opaque

COLUMN = opaque("column")
"""The position in the tile of columns."""


class Packing:
    """Opens the loops over the grid of a kernel that packs, and fills its stages on the way."""

    def __init__(
        self,
        schedule: Schedule,
        split: Symbol,
        values: Evaluator,
        grid: GridLoops,
        reductions: Reductions,
    ) -> None:
        self.schedule = schedule
        self.split = split
        self.values = values
        self.blocks = values.blocks
        self.grid = grid
        self.reductions = reductions
        self.staging = Staging(values)
        self.loops = {loop.symbol: loop for loop in (*schedule.axes, *schedule.sequential)}

    def open(self, env: Env) -> Env:
        """Opens the whole grid."""
        grid = self.schedule.grid
        at = [loop.symbol for loop, _ in grid].index(self.split)
        (columns, count), inside = grid[at], grid[at + 1 :]
        env = self.grid.open(grid[:at], env)
        number = self.grid.tile_number(columns, count)
        outer = len(self.values.grid)
        run: dict[Symbol, Range] = {}
        # Where a chunk has one tile of columns, its strips serve all chunks that differ inside it
        # only.
        is_kept = not self.blocks.depth and any(n for _, n in inside)
        if self.schedule.runs is not None:
            env, run = self.open_runs(self.schedule.runs, env)
            is_kept = False
        env = self.open_tile(columns, number, outer if is_kept else None, env)
        return self.grid.open(inside, env, run)

    def open_runs(self, runs: RowRuns, env: Env) -> tuple[Env, dict[Symbol, Range]]:
        """Opens the loop over runs of rows; gives the point at the first row of a run, and from
        where to where the rows of one go.
        """
        ((rows, count),) = (pair for pair in self.schedule.grid if pair[0].symbol == runs.rows)
        extent = self.values.canonical(rows.extent)
        first = self.blocks.fresh_axis(extent)
        end = opaque(f"end_{first.name}", 1, extent.interval.hi)
        self.values.named.add(end)
        # Keys are read, and strips packed, at the first row of a run: its other rows agree with it.
        start = rows.positions(first)
        self.reductions.shared |= dict.fromkeys(runs.shared, start)
        env = env.bind(start)
        places = (self.values.fused.reads[key] for key in runs.keys)
        keys = tuple(
            (self.values.operand(place, Role.IN), self.values.canonical(place.offset(env.values)))
            for place in places
        )
        self.blocks.open_runs(first, end, *self.grid.chunk(rows, count), keys)
        return env, {rows.symbol: (first, end)}

    def open_tile(self, columns: LoopAxis, number: Expression, outer: int | None, env: Env) -> Env:
        """Packs the strips of a tile of columns, and opens the loop inside of it. Where strips are
        kept for chunks that agree along the `outer` axes of the grid, they are packed once.
        """
        stages = self.schedule.packed
        rooms = [self.room(stage, columns) for stage in stages]
        if outer is not None:
            self.blocks.open_once(outer)
        for stage, room in zip(stages, rooms, strict=True):
            room.level = self.blocks.depth
            _, tile = stage.fill[0]
            self.pack(stage, room, self.walk(columns, number, tile), env)
        if outer is not None:
            self.blocks.close()
        inside = self.staging.open(self.walk(columns, number, self.schedule.tile(columns)), env)
        for stage, room in zip(stages, rooms, strict=True):
            room.level = self.blocks.depth - 1
            self.reductions.know(stage, room)
        return inside

    def walk(self, columns: LoopAxis, number: Expression, tile: TileChoice) -> Walk:
        """A loop over one tile of the columns, itself in such tiles."""
        size = self.schedule.tile(columns).size
        first = number * size
        stop = minimum(const(size), self.values.canonical(columns.extent) - first)

        def positions(lane: Expression) -> dict[Symbol, Expression]:
            return {**columns.positions(first + lane), COLUMN: lane}

        return Walk(self.blocks.fresh_axis(const(size)), const(0), stop, positions, tile)

    def room(self, stage: Stage, columns: LoopAxis) -> Staged:
        """The strip of a factor."""
        size = self.schedule.tile(columns).size
        dimensions = {columns.symbol: Dimension(COLUMN, const(size))}
        for symbol, _ in stage.fill[1:]:
            loop = self.loops[symbol]
            position, count = linear(loop.members), loop.neighbours
            dimensions[symbol] = Dimension(position // count, loop.extent, count, position % count)
        return self.staging.room_of(stage, dimensions)

    def pack(self, stage: Stage, room: Staged, columns: Walk, env: Env) -> None:
        """Copies a factor into its strip; the short ones of the inner loops are written out."""
        env = self.staging.open(columns, env)
        _, *steps = stage.fill
        loops = [self.loops[symbol] for symbol, _ in steps]
        written = self.reductions.written_out(loops, loops)
        walks = []
        for (_, tile), loop in zip(steps[: len(steps) - len(written)], loops, strict=False):
            extent = self.values.canonical(loop.extent)
            axis = self.blocks.fresh_axis(extent)
            walks.append(Walk(axis, const(0), extent, loop.positions, tile))
        elements = partial(self.reductions.elements, stage, written)
        self.staging.fill(room, walks, env, elements)
        self.blocks.close()

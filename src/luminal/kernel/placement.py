"""Placement: a fused kernel and its schedule become one loop nest, by the once-per-point law.

Grid axes lie in the free axes of every reduction, so each reduction runs once per grid point; what
a later loop needs again is a local row. Softmax, norms, matrix products with epilogues,
convolutions and plain maps are the same few steps:

    for the grid's chunk:          loops over the grid axes, some in tiles
        pack strips                 (contractions) one strip per tile of the vector axis
        for each stage of reductions, siblings over the same axes together:
            loops over the reduced axes, accumulators carried
        for each store:             loops over the axes that remain
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from luminal.algebra.frames import extent_of, linear
from luminal.algebra.terms import Axes, Index, Term
from luminal.base.dots import Dot
from luminal.base.dtypes import bool_
from luminal.base.records import dataclass
from luminal.kernel.evaluate import Env, Evaluator, Placed, Row
from luminal.kernel.fused import Fused, Store
from luminal.kernel.guards import Range, cut_points, whole_vectors
from luminal.kernel.loops import LoopAxis
from luminal.kernel.neighbours import copied, multiplied
from luminal.kernel.schedule import Schedule, TileChoice
from luminal.kernel.stages import Stages, every_point
from luminal.kernel.tile_ir import Role
from luminal.shape.expression import (
    TRUE,
    Expression,
    Symbol,
    all_of,
    ceil_div,
    const,
    maximum,
    minimum,
    opaque,
)

MOST_CUTS = 4  # of a loop into pieces: each is a copy of the code


def place(fused: Fused, schedule: Schedule) -> Placed:
    """The tile IR of a fused kernel under a schedule."""
    return Placement(fused, schedule).run()


class Placement:
    def __init__(self, fused: Fused, schedule: Schedule) -> None:
        self.fused = fused
        self.schedule = schedule
        self.values = Evaluator(fused)
        self.blocks = self.values.blocks
        self.stages = Stages(fused, schedule, self.values)
        self.in_run: Range | None = None  # first and end of a run of rows

    def run(self) -> Placed:
        # Where there are reductions, guards bound their loops; plain maps are cut into pieces, each
        # with its conditions decided, so that vectors of a long middle part need no masks.
        # Lanes have no long middle part.
        whole = self.schedule.packed_along is not None or self.schedule.by_groups
        cut = None if self.fused.reductions or whole else self.cut()
        if cut is not None:
            self.store_in_pieces(*cut)
            return self.values.finish()
        if self.schedule.by_rows:
            self.sum_by_rows()
            return self.values.finish()
        env = self.grid_loops(self.schedule.grid, Env({}))
        # Inside of the grid's loops: a row holds one point of them, so its loads may not move out.
        self.local_rows()
        self.stages.run(env)
        self.store_all(env)
        return self.values.finish()

    def sum_by_rows(self) -> None:
        """Sums of columns as rows lie: a tile of columns that runs all steps jumps from row
        to row, where no prefetcher follows. The order of additions is the same.
        """
        grid = self.schedule.grid
        first = len(grid) - (1 if self.schedule.rows is None else 2)
        env = self.grid_loops(grid[:first], Env({}))
        inner = [(loop, self.chunk(loop, count)) for loop, count in grid[first:]]
        count = grid[first][1]
        self.stages.run_by_rows(inner, const(count) if count else inner[0][1][1], env)
        for loop, span in inner:
            env = self.open_loop(loop, span, env)
        self.store_all(env)

    # --- the grid

    def grid_loops(self, grid: Sequence[tuple[LoopAxis, int]], env: Env) -> Env:
        """Opens the loops over one chunk of the grid."""
        for loop, count in grid:
            if loop.symbol == self.schedule.packed_along:
                env = self.packed_loop(loop, count, env)
            elif count == 1 and self.schedule.tile(loop).size == 1:
                env = env.bind(loop.positions(self.values.grid_axis(loop.extent)))
            elif loop.symbol == self.schedule.rows and self.in_run is not None:
                env = self.open_loop(loop, self.in_run, env)
            else:
                env = self.open_loop(loop, self.chunk(loop, count), env)
        return env

    def chunk(self, loop: LoopAxis, count: int) -> Range:
        """One chunk of a grid axis: of `count` positions, or whole (0)."""
        extent = self.values.canonical(loop.extent)
        if not count:
            return const(0), extent
        chunk = self.values.grid_axis(ceil_div(loop.extent, count))
        return chunk * count, minimum(chunk * count + count, extent)

    def open_loop(self, loop: LoopAxis, span: Range, env: Env, piece: Range | None = None) -> Env:
        """Opens a loop over `span`, or over what a piece of the axis has of it."""
        tile = self.schedule.tile(loop)
        first, last = piece or (const(0), self.values.canonical(loop.extent))
        symbol = self.blocks.fresh_axis(last - first)
        start, stop = span
        if piece is not None:
            start, stop = maximum(start - first, 0), minimum(stop, last) - first
        self.blocks.open(symbol, start, stop, tile)
        return env.bind(loop.positions(first + symbol))

    def cut(self) -> tuple[int, list[Expression]] | None:
        """The innermost loop along which conditions change, by its number, and where."""
        indices = (t for t in self.fused.terms if isinstance(t, Index))
        conditions = [t.attrs for t in indices if t.dtype is bool_]
        # One loop is cut, or pieces would multiply: an inner one, where vectors would have masks.
        for number, (loop, _) in reversed(list(enumerate(self.schedule.grid))):
            extent, lanes = self.values.canonical(loop.extent), self.schedule.tile(loop).vector
            points = cut_points(map(self.values.canonical, conditions), loop.symbol, extent)
            if lanes > 1 and extent.is_const:
                points = whole_vectors(points, lanes, extent.value)
            if points and len(points) <= MOST_CUTS:
                return number, points
        return None

    def store_in_pieces(self, number: int, points: Sequence[Expression]) -> None:
        """The loops of a kernel without reductions, one of them in pieces: in each of those all
        conditions along it are decided, or none.
        """
        grid = self.schedule.grid
        outside = self.grid_loops(grid[:number], Env({}))
        # Once for all pieces: each time a chunk is asked for, the grid gets an axis.
        spans = [(loop, self.chunk(loop, count)) for loop, count in grid[number:]]
        (loop, span), *inner = spans
        depth = self.blocks.depth
        for piece in pairwise([const(0), *points, self.values.canonical(loop.extent)]):
            env = self.open_loop(loop, span, outside, piece)
            for each, whole in inner:
                env = self.open_loop(each, whole, env)
            self.store_all(env)
            while self.blocks.depth > depth:
                self.blocks.close()

    def packed_loop(self, loop: LoopAxis, count: int, env: Env) -> Env:
        """The axis that strips are packed along: a loop over tiles, then one over the tile, so that
        the position in the strip has a name.
        """
        tile = self.schedule.tile(loop)
        extent = self.values.canonical(loop.extent)
        number = self.tile_number(loop, count)
        outer = len(self.values.grid)
        # Of one tile a chunk, strips serve the chunks that differ in what lies inside.
        inner = self.schedule.grid[[x for x, _ in self.schedule.grid].index(loop) + 1 :]
        is_kept = not self.blocks.depth and not self.schedule.keys and any(n for _, n in inner)
        env = self.runs(env)
        first = number * tile.size
        span = const(0), minimum(const(tile.size), extent - first)
        # Packed once per tile of columns, read again for every tile of rows.
        strips = {
            (term, dot): self.strip(term, dot, tile)
            for term in self.schedule.packs
            for dot in self.stages.dots_of(term)
        }
        if is_kept:
            self.blocks.open_once(outer)
        level = self.blocks.depth
        unroll = tile.unroll if self.schedule.lines is None else 1
        for (term, dot), strip in strips.items():
            lane = self.blocks.fresh_axis(const(tile.size))
            self.blocks.open(lane, *span, TileChoice(unroll, tile.vector))
            self.pack(term, dot, strip.row(lane, level), env.bind(loop.positions(first + lane)))
            self.blocks.close()
        if is_kept:
            self.blocks.close()
            level = self.blocks.depth
        lane = self.blocks.fresh_axis(const(tile.size))
        self.blocks.open(lane, *span, tile)
        for (term, dot), strip in strips.items():
            row = strip.row(lane, level)
            row.ready = True
            if dot is None:
                self.values.rows[term] = row
            else:
                self.stages.strips[term, dot] = row
        return env.bind(loop.positions(first + lane))

    def tile_number(self, loop: LoopAxis, count: int) -> Symbol:
        """Which tile of an axis, of those in a chunk of `count` positions, or of all (0)."""
        size = self.schedule.tile(loop).size
        if count == size:
            return self.values.grid_axis(ceil_div(loop.extent, count))
        tiles = ceil_div(self.values.canonical(loop.extent), size)
        start, stop = const(0), tiles
        if count:
            per_chunk = count // size
            chunk = self.values.grid_axis(ceil_div(loop.extent, count))
            start, stop = chunk * per_chunk, minimum(chunk * per_chunk + per_chunk, tiles)
        number = self.blocks.fresh_axis(tiles)
        self.blocks.open(number, start, stop)
        return number

    def runs(self, env: Env) -> Env:
        """Opens the loop over runs of rows, if strips differ from run to run."""
        schedule = self.schedule
        if not schedule.keys:
            return env
        ((rows, count),) = (pair for pair in schedule.grid if pair[0].symbol == schedule.rows)
        extent = self.values.canonical(rows.extent)
        first = self.blocks.fresh_axis(extent)
        end = opaque(f"end_{first.name}", 1, extent.interval.hi)
        self.values.named.add(end)
        # Keys are read, and strips packed, at the first row of a run: its other rows agree with it.
        self.stages.run_starts = rows.positions(first)
        env = env.bind(self.stages.run_starts)
        places = (self.fused.reads[key] for key in schedule.keys)
        keys = tuple(
            (self.values.operand(place, Role.IN), self.values.canonical(place.offset(env.values)))
            for place in places
        )
        self.blocks.open_runs(first, end, *self.chunk(rows, count), keys)
        self.in_run = first, end
        return env

    def strip(self, term: Term, dot: Dot | None, tile: TileChoice) -> _Strip:
        """Room for a factor of a contraction at a tile of columns.

        Vector tiles lie together, one after the other along the reduced axes; rows of dot products
        lie whole, padded as the schedule says. A dot finds its neighbours side by side.
        """
        loops = sorted(self.packed_axes(term, dot), key=lambda x: x.neighbours)
        axes = tuple(a for x in loops for a in x.members)
        length, dtype = extent_of(axes), multiplied(term, dot)
        together = 1 if dot is None else dot.k
        if tile.vector > 1:
            point, column, size = const(tile.size), const(1), length * tile.size
        else:
            point, column = const(1), length + self.schedule.padding // dtype.size
            size = column * tile.size
            together = 1  # they are already
        return _Strip(self.values.new_scratch(dtype, size), axes, point, column, together)

    def packed_axes(self, term: Term, dot: Dot | None) -> list[LoopAxis]:
        """The reduced axes of a factor, as a dot walks them."""
        along = {a for r, a in self.stages.along.items() if self.fused.dots[r] is dot}
        return [
            x
            for x in self.schedule.sequential
            if not term.axes.isdisjoint(x.members)
            and (x.neighbours > 1) == (x.members[-1] in along)
        ]

    def pack(self, term: Term, dot: Dot | None, strip: Row, env: Env) -> None:
        """Copies a factor of a contraction into its strip, along `lines` in tiles that are
        transposed in registers.
        """
        loops = self.packed_axes(term, dot)
        written = self.stages.written_out(loops, loops)
        open_loops = loops[: len(loops) - len(written)]
        for loop in open_loops:
            own = self.schedule.lines
            tile = TileChoice(own[1]) if own is not None and own[0] == loop.symbol else None
            env = env.bind(loop.positions(self.tiled_loop(loop, tile)))
        points = every_point(written, env)
        if dot is not None:
            points = self.stages.neighbours(self.stages.with_factor(term, dot), points)[1]
        for here in points:
            self.values.store_row(strip, here, self.stages.factor(term, dot, here))
        for _ in (*open_loops, *(() if dot is None else (dot,))):
            self.blocks.close()

    def tiled_loop(self, loop: LoopAxis, tile: TileChoice | None = None) -> Symbol:
        """A whole loop in tiles, the schedule's by default."""
        tile = tile or self.schedule.tile(loop)
        extent = self.values.canonical(loop.extent)
        symbol = self.blocks.fresh_axis(extent)
        self.blocks.open(symbol, const(0), extent, tile)
        return symbol

    def local_rows(self) -> None:
        """Scratch for the local values that have axes inside the grid (no tile of rows at once)."""
        # A row holds one point of the grid at a time: several at once would write over each other.
        if any(self.schedule.tile(loop).size > 1 for loop, _ in self.schedule.grid):
            return
        outer = {a for loop, _ in self.schedule.grid for a in loop.members}
        for term in self.fused.terms:
            if term in self.fused.local and not term.is_reduction and term.axes - outer:
                axes = tuple(
                    a for x in self.schedule.axes for a in x.members if a in term.axes - outer
                )
                buffer = self.values.new_scratch(term.dtype, extent_of(axes))
                position = linear(axes)
                row = Row(buffer, partial(_at, position), self.blocks.depth)
                self.values.rows[term] = row

    # --- stores

    def store_all(self, env: Env) -> None:
        """The stores, those over the same remaining axes in one loop nest."""
        waiting = list(self.fused.stores)
        while waiting:
            loops = self.remaining(waiting[0])
            together = [s for s in waiting if self.remaining(s) == loops]
            waiting = [s for s in waiting if s not in together]
            inside = env
            for loop in loops:
                inside = inside.bind(loop.positions(self.tiled_loop(loop)))
            for store in together:
                self.store(store, inside)
            for _ in loops:
                self.blocks.close()
            # Stores over other axes come after these loops,
            # and may read what they have left in rows.
            if loops:
                self.stages.rows_written([inside])

    def remaining(self, store: Store) -> list[LoopAxis]:
        return [x for x in self.schedule.inner if x.members[0] in store.axes]

    def store(self, store: Store, env: Env) -> None:
        place = store.place
        if store.index is None:
            by_words = copied(self.fused)
            if by_words is not None:  # the loops around walk words
                along, count = by_words
                near = self.blocks.open_neighbours(count)
                env = env.bind({along: env.values[along] + near})
            value = self.values.evaluate(store.term, env)
            self.values.store(place, store.offset(env.values), value, TRUE, add=store.add)
            if by_words is not None:
                self.blocks.close()
            return
        value = self.values.evaluate(store.term, env)
        positions: list[Expression] = []
        guards: list[Expression] = []
        for entry, extent in zip(store.index, place.shape, strict=True):
            if isinstance(entry, Term):
                index: Expression = self.values.bind(self.values.evaluate(entry, env))
            else:
                index = entry.substitute(env.values)
            positions.append(index)
            guards += [c for c in (index >= 0, index < extent) if not self.values.holds(c)]
        offset = place.layout.offset(positions, place.shape)
        self.values.store(place, offset, value, all_of(guards), add=store.add)


@dataclass(frozen=True, slots=True)
class _Strip:
    """Where a packed factor lies: `point` elements from step to step of the reduced `axes`, and
    `column` from column to column; in both so many neighbours `together`.
    """

    buffer: str
    axes: Axes
    point: Expression
    column: Expression
    together: int

    def row(self, lane: Symbol, level: int) -> Row:
        """As it is written or read at a column."""

        def offset(env: Env) -> Expression:
            step, n = linear(self.axes).substitute(env.values), self.together
            return (step // n * self.point + lane * self.column) * n + step % n

        return Row(self.buffer, offset, level)


def _at(position: Expression, env: Env) -> Expression:
    return position.substitute(env.values)

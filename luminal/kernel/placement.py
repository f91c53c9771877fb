"""Placement: a group and its schedule become one loop nest, by the once-per-point law.

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

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from luminal.algebra.frames import extent_of, linear
from luminal.algebra.terms import Axes, Index, Reduction, Term, below
from luminal.dtypes import bool_
from luminal.hlir.monoid import SUM
from luminal.kernel.carries import close_loop
from luminal.kernel.evaluate import Env, Evaluator, Placed, Row
from luminal.kernel.group import Group, Store
from luminal.kernel.guards import Range, cut_points, factors, guarded, ranges, whole_vectors
from luminal.kernel.layout import CACHE_LINE
from luminal.kernel.loops import LoopAxis
from luminal.kernel.schedule import Schedule, TileChoice
from luminal.kernel.tile_ir import (
    Contract,
    Map,
    Role,
    Tile,
)
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
MOST_CODE = 150  # vectors of a tile times positions: LLVM's time grows faster than the code
WRITTEN_OUT = 9  # positions of the innermost loops written one by one: a window of 3 by 3


def place(group: Group, schedule: Schedule) -> Placed:
    """The tile IR of a group under a schedule."""
    return Placement(group, schedule).run()


class Placement:
    def __init__(self, group: Group, schedule: Schedule) -> None:
        self.group = group
        self.schedule = schedule
        self.values = Evaluator(group)
        self.blocks = self.values.blocks
        self.pending = [*group.reductions]
        self.in_run: Range | None = None  # first and end of a run of rows
        self.run_starts: dict[Symbol, Expression] = {}  # the rows' axes at the first of a run

    def run(self) -> Placed:
        is_packed = self.schedule.packed_along is not None
        cut = None if self.pending or is_packed else self.cut()
        if cut is not None:
            self.store_in_pieces(*cut)
            return self.values.finish()
        env = self.grid_loops(self.schedule.grid, Env({}))
        self.local_rows()
        while self.pending:
            self.reduce(self.next_stage(), env)
        self.store_all(env)
        return self.values.finish()

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
        self.blocks.open(symbol, start, stop, tile.unroll, tile.vector)
        return env.bind(loop.positions(first + symbol))

    def cut(self) -> tuple[int, list[Expression]] | None:
        """The innermost loop along which conditions change, by its number, and where."""
        indices = (t for t in self.group.terms if isinstance(t, Index))
        conditions = [t.attrs for t in indices if t.dtype is bool_]
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
        tiles = ceil_div(extent, tile.size)
        start, stop = const(0), tiles
        if count:
            per_chunk = count // tile.size
            chunk = self.values.grid_axis(ceil_div(loop.extent, count))
            start, stop = chunk * per_chunk, minimum(chunk * per_chunk + per_chunk, tiles)
        number = self.blocks.fresh_axis(tiles)
        self.blocks.open(number, start, stop)
        env = self.runs(env)
        first = number * tile.size
        span = const(0), minimum(const(tile.size), extent - first)
        strips = {term: self.strip(term, tile) for term in self.schedule.packs}
        level = self.blocks.depth
        unroll = tile.unroll if self.schedule.lines is None else 1
        for term, strip in strips.items():
            lane = self.blocks.fresh_axis(const(tile.size))
            self.blocks.open(lane, *span, unroll, tile.vector)
            self.pack(term, strip.row(lane, level), env.bind(loop.positions(first + lane)))
            self.blocks.close()
        lane = self.blocks.fresh_axis(const(tile.size))
        self.blocks.open(lane, *span, tile.unroll, tile.vector)
        for term, strip in strips.items():
            self.values.rows[term] = strip.row(lane, level)
            self.values.rows[term].ready = True
        return env.bind(loop.positions(first + lane))

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
        self.run_starts = rows.positions(first)
        env = env.bind(self.run_starts)
        places = (self.group.reads[key] for key in schedule.keys)
        keys = tuple(
            (self.values.operand(place, Role.IN), self.values.canonical(place.offset(env.values)))
            for place in places
        )
        self.blocks.open_runs(first, end, *self.chunk(rows, count), keys)
        self.in_run = first, end
        return env

    def strip(self, term: Term, tile: TileChoice) -> _Strip:
        """Room for a factor of a contraction at a tile of columns.

        Vector tiles lie together, one after the other along the reduced axes; rows of dot products
        lie whole, padded so that rows a power of two long do not meet in the same cache sets.
        """
        axes = tuple(a for x in self.packed_axes(term) for a in x.members)
        length = extent_of(axes)
        if tile.vector > 1:
            point, column, size = const(tile.size), const(1), length * tile.size
        else:
            point, column = const(1), length + CACHE_LINE // term.dtype.size
            size = column * tile.size
        return _Strip(self.values.new_scratch(term.dtype, size), axes, point, column)

    def packed_axes(self, term: Term) -> list[LoopAxis]:
        """The reduced axes of a factor."""
        return [x for x in self.schedule.sequential if not term.axes.isdisjoint(x.members)]

    def pack(self, term: Term, strip: Row, env: Env) -> None:
        """Copies a factor of a contraction into its strip, along `lines` in tiles that are
        transposed in registers.
        """
        loops = self.packed_axes(term)
        written = self.written_out(loops, loops)
        open_loops = loops[: len(loops) - len(written)]
        for loop in open_loops:
            own = self.schedule.lines
            tile = TileChoice(own[1]) if own is not None and own[0] == loop.symbol else None
            env = env.bind(loop.positions(self.tiled_loop(loop, tile)))
        for here in every_point(written, env):
            self.values.store_row(strip, here, self.values.evaluate(term, here))
        for _ in open_loops:
            self.blocks.close()

    def written_out(self, loops: Sequence[LoopAxis], whole: Sequence[LoopAxis]) -> list[LoopAxis]:
        """The innermost loops, run whole, so short that their positions are written one by one."""
        found: list[LoopAxis] = []
        points, most = 1, min(WRITTEN_OUT, MOST_CODE // self.blocks.unrolled)
        for loop in reversed(loops):
            extent = loop.extent
            points *= extent.value if extent.is_const and extent.value else WRITTEN_OUT + 1
            if points > most or self.schedule.tile(loop).size > 1 or loop not in whole:
                break
            found.insert(0, loop)
        return found

    def tiled_loop(self, loop: LoopAxis, tile: TileChoice | None = None) -> Symbol:
        """A whole loop in tiles, the schedule's by default."""
        tile = tile or self.schedule.tile(loop)
        extent = self.values.canonical(loop.extent)
        symbol = self.blocks.fresh_axis(extent)
        self.blocks.open(symbol, const(0), extent, tile.unroll, tile.vector)
        return symbol

    def local_rows(self) -> None:
        """Scratch for the local values that have axes inside the grid (no tile of rows at once)."""
        if any(self.schedule.tile(loop).size > 1 for loop, _ in self.schedule.grid):
            return
        outer = {a for loop, _ in self.schedule.grid for a in loop.members}
        for term in self.group.terms:
            if term in self.group.local and not term.is_reduction and term.axes - outer:
                axes = tuple(
                    a for x in self.schedule.axes for a in x.members if a in term.axes - outer
                )
                buffer = self.values.new_scratch(term.dtype, extent_of(axes))
                position = linear(axes)
                row = Row(buffer, partial(_at, position), self.blocks.depth)
                self.values.rows[term] = row

    def rows_written(self, points: Sequence[Env]) -> None:
        """After a loop nest with these points inside: rows computed at all of them can be read."""
        for row in self.values.rows.values():
            row.ready = row.ready or all(
                self.values.canonical(row.offset(p)) in row.offsets for p in points
            )

    # --- reductions

    def next_stage(self) -> list[Reduction]:
        """The reductions to run next: all over the same axes that wait for no other."""
        waiting = set(self.pending)
        ready = [r for r in self.pending if not _below(r, waiting, self.group)]
        stage = [r for r in ready if set(r.attrs) == set(ready[0].attrs)]
        self.pending = [r for r in self.pending if r not in stage]
        return stage

    def reduce(self, stage: Sequence[Reduction], env: Env) -> None:
        """One loop nest over the axes of a stage; every accumulator is carried through it."""
        level = self.blocks.depth
        bound = set(stage[0].attrs)
        loops = [x for x in self.schedule.sequential if x.members[0] in bound]
        symbols = [self.blocks.fresh_axis(self.values.canonical(x.extent)) for x in loops]
        inside = env
        for loop, symbol in zip(loops, symbols, strict=True):
            inside = inside.bind(loop.positions(symbol))
        reduced, ranges = self.without_guard(stage, symbols, inside)
        pairs = list(zip(loops, symbols, strict=True))
        whole = [loop for loop, symbol in pairs if ranges[symbol] == (const(0), symbol.extent)]
        written = self.written_out(loops, whole)
        inside = env
        del symbols[len(loops) - len(written) :]
        for loop, symbol in pairs[: len(symbols)]:
            inside = inside.bind(loop.positions(symbol))
            tile = self.schedule.tile(loop)
            self.blocks.open(symbol, *ranges[symbol], tile.unroll, tile.vector)
        points = every_point(written, inside)
        carries = self.accumulate(stage, reduced, points, symbols)
        for depth in range(len(symbols) - 1, -1, -1):
            carries = close_loop(self.values, stage, carries, symbols[depth], inside=depth > 0)
        for reduction, (result, _, _) in zip(stage, carries, strict=True):
            assert result is not None  # the loops are closed
            self.blocks.stack[level].known[self.values.key(reduction, env)] = result
        self.rows_written(points)

    def without_guard(
        self, stage: Sequence[Reduction], symbols: Sequence[Symbol], env: Env
    ) -> tuple[list[Term], dict[Symbol, Range]]:
        """The reduced values and the ranges of the loops: cut to where one common guard holds."""
        extents = {s: self.values.canonical(s.extent) for s in symbols if s.extent is not None}
        whole = {symbol: (const(0), extent) for symbol, extent in extents.items()}
        found = [guarded(reduction) for reduction in stage]
        plain = [reduction.args[0] for reduction in stage]
        pending = {t for t, row in self.values.rows.items() if not row.ready}
        if any(f is None for f in found) or any(_below(r, pending, self.group) for r in stage):
            return plain, whole
        conditions = {f[0] for f in found if f is not None}
        if len(conditions) > 1 or any(x in self.group.reads for x in plain):
            return plain, whole
        condition = self.values.canonical(conditions.pop().attrs.substitute(env.values))
        cut = ranges(condition, extents, self.blocks.tiled)
        if cut is None:
            return plain, whole
        return [f[1] for f in found if f is not None], cut

    def operands(self, reduction: Reduction, x: Term, env: Env) -> tuple[Tile, ...]:
        """The reduced value, or the two factors of a contraction."""
        read = x.args if self.is_fused(reduction, x) else (x,)
        return tuple(self.operand(term, env) for term in read)

    def operand(self, term: Term, env: Env) -> Tile:
        """A reduced value or a factor, which a run of rows may have in common."""
        is_shared = term in self.schedule.shared
        return self.values.evaluate(term, env.bind(self.run_starts) if is_shared else env)

    def is_fused(self, reduction: Reduction, x: Term) -> bool:
        """Is `x` a product that is multiplied and added in one step?"""
        fused = reduction.monoid is SUM and x.op == "Mul" and x.dtype.is_float
        return fused and not self.is_at_hand(x)

    def masked_operands(
        self, reduction: Reduction, x: Term, env: Env
    ) -> tuple[tuple[Tile, ...], Tile | None]:
        """The operands, and where they count if not everywhere."""
        if self.is_fused(reduction, x):
            condition, pair = factors(x, self.is_at_hand)
            if condition is not None:
                tiles = tuple(self.operand(factor, env) for factor in pair)
                return tiles, self.values.evaluate(condition, env)
        return self.operands(reduction, x, env), None

    def is_at_hand(self, term: Term) -> bool:
        """Is it read from a buffer or from scratch?"""
        return term in self.group.reads or term in self.values.rows

    def accumulate(
        self,
        stage: Sequence[Reduction],
        reduced: Sequence[Term],
        points: Sequence[Env],
        symbols: Sequence[Symbol],
    ) -> list[tuple[Tile | None, Tile, Tile]]:
        """The body of the innermost loop, for some points of the loops written out: of each
        reduction (the result where no loop is open, the accumulator before, after).
        """
        level = self.blocks.depth
        first: dict[Term, Tile] = {}
        last: dict[Term, Tile] = {}
        for point in points:
            for reduction, x in zip(stage, reduced, strict=True):
                operands, mask = self.masked_operands(reduction, x, point)
                if reduction not in first:
                    touched = operands if mask is None else (*operands, mask)
                    carried = self.accumulated(x, touched, points).union(symbols)
                    first[reduction] = last[reduction] = (
                        self.blocks.new(carried, reduction.dtype, level)
                        if symbols
                        else self.values.identity(reduction.monoid, reduction.dtype)
                    )
                before = last[reduction]
                axes = {a for tile in (before, *operands) for a in tile.axes}
                after = self.blocks.new(axes, reduction.dtype, level)
                if len(operands) == 2:
                    self.blocks.put(Contract(after, before, *operands), level)
                else:
                    combine = reduction.monoid.combine
                    self.blocks.put(Map(after, combine, (before, *operands)), level)
                if mask is not None:
                    after = self.values.map("Select", (mask, after, before), reduction.dtype)
                last[reduction] = after
        return [(None if symbols else last[r], first[r], last[r]) for r in stage]

    def accumulated(self, x: Term, operands: Sequence[Tile], points: Sequence[Env]) -> set[Symbol]:
        """The axes of a carried accumulator: those of the operands, at any of the points."""
        axes = {a for tile in operands for a in tile.axes}
        for point in points[1:]:
            axes |= {symbol for a in x.axes for symbol in point.values[a].symbols()}
        return axes

    # --- stores

    def store_all(self, env: Env) -> None:
        """The stores, those over the same remaining axes in one loop nest."""
        waiting = list(self.group.stores)
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
            if loops:
                self.rows_written([inside])

    def remaining(self, store: Store) -> list[LoopAxis]:
        return [x for x in self.schedule.inner if x.members[0] in store.axes]

    def store(self, store: Store, env: Env) -> None:
        value = self.values.evaluate(store.term, env)
        place = store.place
        if store.index is None:
            self.values.store(place, store.offset(env.values), value, TRUE, add=store.add)
            return
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
    `column` from column to column.
    """

    buffer: str
    axes: Axes
    point: Expression
    column: Expression

    def row(self, lane: Symbol, level: int) -> Row:
        """As it is written or read at a column."""

        def offset(env: Env) -> Expression:
            return linear(self.axes).substitute(env.values) * self.point + lane * self.column

        return Row(self.buffer, offset, level)


def _at(position: Expression, env: Env) -> Expression:
    return position.substitute(env.values)


def every_point(loops: Sequence[LoopAxis], env: Env) -> list[Env]:
    """The environments at all positions of loops of literal extents, in row-major order."""
    points = [env]
    for loop in loops:
        count = range(loop.extent.value)
        points = [point.bind(loop.positions(const(k))) for point in points for k in count]
    return points


def _below(reduction: Reduction, wanted: Set[Term], group: Group) -> bool:
    """Does the reduction use one of `wanted` (other than itself)?"""
    return not wanted.isdisjoint(below(reduction.args, group.reads.__contains__))

"""Stages of reductions as loop nests, which every placement is made of.

Reductions that wait for no other and run over the same axes are one stage: one loop nest, with an
accumulator each. The loops may be in tiles, short ones are written out position by position, and a
guard that all reductions of the stage have in common becomes the bounds of the loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from luminal.algebra.frames import linear
from luminal.algebra.terms import At, Reduction, Term, below
from luminal.base.dots import Dot, multiply_add
from luminal.hlir.monoid import SUM
from luminal.kernel.carries import close_loop
from luminal.kernel.evaluate import Env, Evaluator, Row
from luminal.kernel.fused import Fused
from luminal.kernel.guards import Range, factors, guarded, ranges
from luminal.kernel.loops import LoopAxis
from luminal.kernel.neighbours import in_order, multiplied, walked
from luminal.kernel.schedule import Schedule
from luminal.kernel.tile_ir import Carry, Contract, Map, Tile
from luminal.shape.expression import Expression, Symbol, const, maximum

MOST_CODE = 150  # vectors of a tile times positions: compile time grows faster than the code
# With literal positions the conditions at a picture's borders become simple or vanish, and weights
# are loaded once for all rows of a tile. Beyond nine positions the compile takes longer than the
# loop costs; three of nine were tried too, and were up to 1.17 times as slow where channels are
# many.
WRITTEN_OUT = 9  # positions of the innermost loops written one by one: a window of 3 by 3


class Stages:
    """The reductions of a fused kernel that are still to be run, under a schedule."""

    def __init__(self, fused: Fused, schedule: Schedule, values: Evaluator) -> None:
        self.fused = fused
        self.schedule = schedule
        self.values = values
        self.blocks = values.blocks
        self.along = walked(fused)
        self.strips: dict[tuple[Term, Dot], Row] = {}  # factors of dots that were packed
        self.pending = [r for r in fused.reductions if not fused.nested(r)]
        self.run_starts: dict[Symbol, Expression] = {}  # the rows' axes at the first of a run

    def run(self, env: Env) -> None:
        """All that is pending, one stage after the other."""
        while self.pending:
            self.reduce(self.next_stage(), env)

    def run_by_rows(
        self, inner: Sequence[tuple[LoopAxis, Range]], size: Expression, env: Env
    ) -> None:
        """All that is pending, with the sums of the `inner` loops (at most `size` of the first) in
        scratch: these loops stand inside of the rows', of which some are written out.
        """
        at_once = self.schedule.by_rows

        def opened(env: Env) -> Env:
            for loop, span in inner:
                symbol = self.blocks.fresh_axis(self.values.canonical(loop.extent))
                self.blocks.open(symbol, *span, self.schedule.tile(loop))
                env = env.bind(loop.positions(symbol))
            return env

        def closed() -> None:
            for _ in inner:
                self.blocks.close()

        while self.pending:
            stage = self.next_stage()
            sums = {r: self.row_of_sums(r, inner, size) for r in stage}
            here = opened(env)
            for reduction, row in sums.items():
                empty = self.values.identity(reduction.monoid, reduction.dtype)
                self.values.store_row(row, here, empty)
            # What bounds the rows' loops may not differ from column to column.
            inside, loops, symbols = self.named(stage, here)
            reduced, ranges = self.without_guard(stage, symbols, inside)
            closed()
            inside = env
            for loop, symbol in zip(loops[:-1], symbols, strict=False):
                self.blocks.open(symbol, *ranges[symbol])
                inside = inside.bind(loop.positions(symbol))
            start, stop = ranges[symbols[-1]]
            whole = start + maximum(stop - start, 0) // at_once * at_once
            for first, end, count in ((start, whole, at_once), (whole, stop, 1)):
                if first == end:
                    continue
                most = maximum(loops[-1].extent // count, 1)
                number = self.blocks.fresh_axis(self.values.canonical(most))
                self.blocks.open(number, const(0), (end - first) // count)
                here = opened(inside)
                steps = (first + number * count + k for k in range(count))
                points = [here.bind(loops[-1].positions(step)) for step in steps]
                before = {r: self.values.load_row(row, here, r.dtype) for r, row in sums.items()}
                for row, after in zip(
                    sums.values(), self.added(stage, reduced, points, before), strict=True
                ):
                    self.values.store_row(row, here, after)
                closed()
                self.blocks.close()
            for _ in loops[:-1]:
                self.blocks.close()
            for reduction, row in sums.items():
                row.ready = True
                self.values.rows[reduction] = row

    def added(
        self,
        stage: Sequence[Reduction],
        reduced: Sequence[Term],
        points: Sequence[Env],
        before: Mapping[Reduction, Tile],
    ) -> list[Tile]:
        """What sums are after some points, which a dot takes with their neighbours."""
        if stage[0] not in self.along:
            return [after for _, _, after in self.accumulate(stage, reduced, points, (), before)]
        level = self.blocks.depth
        near, points = self.neighbours(stage[0], points)
        found = self.accumulate(stage, reduced, points, [near], before)
        carries = [
            Carry(self.blocks.new(inner.axes, r.dtype, level), before[r], inner, after)
            for r, (_, inner, after) in zip(stage, found, strict=True)
        ]
        self.blocks.close(tuple(carries))
        return [carry.result for carry in carries]

    def row_of_sums(
        self, reduction: Reduction, inner: Sequence[tuple[LoopAxis, Range]], size: Expression
    ) -> Row:
        """Room for the sums of the columns, one row for each position of the loops inside."""
        (columns, (start, _)), *others = inner
        position, count = linear(columns.members) - start, size
        for loop, _ in others:
            position += linear(loop.members) * count
            count *= self.values.canonical(loop.extent)
        buffer = self.values.new_scratch(reduction.dtype, count)

        def offset(env: Env) -> Expression:
            return position.substitute(env.values)

        return Row(buffer, offset, self.blocks.depth)

    def next_stage(self) -> list[Reduction]:
        """The reductions to run next: all over the same axes, by words or not, that wait for no
        other.
        """
        waiting = set(self.pending)
        # In one loop nest, so that what several of them read is loaded once.
        ready = [r for r in self.pending if not _below(r, waiting, self.fused)]
        stage = [r for r in ready if self.walk(r) == self.walk(ready[0])]
        self.pending = [r for r in self.pending if r not in stage]
        return stage

    def run_nested(self, x: Term, env: Env) -> None:
        """The sums inside of what is reduced, at a point of its loops."""
        found = below((x,), self.fused.reads.__contains__)
        inner = [r for r in self.fused.reductions if r in found and self.fused.nested(r)]
        inner = [r for r in inner if self.blocks.find(self.values.key(r, env)) is None]
        if inner:
            outside, self.pending = self.pending, inner
            self.run(env)
            self.pending = outside

    def walk(self, reduction: Reduction) -> object:
        """What the loops of a reduction follow from."""
        dot = self.fused.dots.get(reduction)
        words = None if dot is None else (self.along[reduction], dot.k)
        return {*reduction.attrs}, words

    def reduce(self, stage: Sequence[Reduction], env: Env) -> None:
        """One loop nest over the axes of a stage; every accumulator is carried through it."""
        level = self.blocks.depth
        inside, loops, symbols = self.named(stage, env)
        reduced, ranges = self.without_guard(stage, symbols, inside)
        pairs = list(zip(loops, symbols, strict=True))
        whole = [loop for loop, symbol in pairs if ranges[symbol] == (const(0), symbol.extent)]
        written = self.written_out(loops, whole)
        inside = env
        del symbols[len(loops) - len(written) :]
        for loop, symbol in pairs[: len(symbols)]:
            inside = inside.bind(loop.positions(symbol))
            tile = self.schedule.tile(loop)
            self.blocks.open(symbol, *ranges[symbol], tile)
        points = every_point(written, inside)
        if stage[0] in self.along:
            near, points = self.neighbours(stage[0], points)
            symbols.append(near)
        carries = self.accumulate(stage, reduced, points, symbols)
        for depth in range(len(symbols) - 1, -1, -1):
            carries = close_loop(self.values, stage, carries, symbols[depth], inside=depth > 0)
        for reduction, (result, _, _) in zip(stage, carries, strict=True):
            assert result is not None  # the loops are closed
            self.blocks.stack[level].known[self.values.key(reduction, env)] = result
        self.rows_written(points)

    def named(
        self, stage: Sequence[Reduction], env: Env
    ) -> tuple[Env, list[LoopAxis], list[Symbol]]:
        """The loops over the axes of a stage. All are named before one is opened: a guard tells the
        bounds of each.
        """
        loops = [x for x in self.schedule.sequential if x.is_reduced(stage[0], self.along)]
        symbols = [self.blocks.fresh_axis(self.values.canonical(x.extent)) for x in loops]
        for loop, symbol in zip(loops, symbols, strict=True):
            env = env.bind(loop.positions(symbol))
        return env, loops, symbols

    def neighbours(self, reduction: Reduction, points: Sequence[Env]) -> tuple[Symbol, list[Env]]:
        """Opens the loop over the neighbours that a dot multiplies together; gives its axis, and
        the points in it.
        """
        along, count = self.along[reduction], self.fused.dots[reduction].k
        near = self.blocks.open_neighbours(count)
        return near, [point.bind({along: point.values[along] + near}) for point in points]

    def without_guard(
        self, stage: Sequence[Reduction], symbols: Sequence[Symbol], env: Env
    ) -> tuple[list[Term], dict[Symbol, Range]]:
        """The reduced values and the ranges of the loops: cut to where one common guard holds."""
        extents = {s: self.values.canonical(s.extent) for s in symbols if s.extent is not None}
        whole = {symbol: (const(0), extent) for symbol, extent in extents.items()}
        found = [guarded(reduction) for reduction in stage]
        plain = [reduction.args[0] for reduction in stage]
        # A row that is written on the way must be written whole, and siblings share their loops: so
        # a loop may stop early only where nothing but these sums would have been computed.
        pending = {t for t, row in self.values.rows.items() if not row.ready}
        if any(f is None for f in found) or any(_below(r, pending, self.fused) for r in stage):
            return plain, whole
        conditions = {f[0] for f in found if f is not None}
        # What is read as it was stored, mask and all, has nothing behind the mask in this kernel.
        if len(conditions) > 1 or any(x in self.fused.reads for x in plain):
            return plain, whole
        condition = self.values.canonical(conditions.pop().attrs.substitute(env.values))
        cut = ranges(condition, extents, self.blocks.tiled)
        if cut is None:
            return plain, whole
        return [f[1] for f in found if f is not None], cut

    def operands(self, reduction: Reduction, x: Term, env: Env) -> tuple[Tile, ...]:
        """The reduced value, or the two factors of a contraction."""
        dot = self.fused.dots.get(reduction)
        if dot is not None:
            return tuple(self.factor(each, dot, env) for each in in_order(x.args, dot))
        read = x.args if self.is_fused(reduction, x) else (x,)
        return tuple(self.operand(term, env) for term in read)

    def operand(self, term: Term, env: Env) -> Tile:
        """A reduced value or a factor, which a run of rows may have in common."""
        # The rows of a run agree on where it lies, so it is loaded for the first of them alone.
        is_shared = term in self.schedule.shared
        return self.values.evaluate(term, env.bind(self.run_starts) if is_shared else env)

    def dots_of(self, factor: Term) -> list[Dot | None]:
        """What multiplies a factor, in the reductions that have it."""
        users = (r for r in self.fused.reductions if factor in r.args[0].args)
        return [*dict.fromkeys(self.fused.dots.get(r) for r in users)] or [None]

    def is_packed(self, factor: Term, reduction: Reduction) -> bool:
        """Does a factor lie in a strip, as the reduction takes it?"""
        dot = self.fused.dots.get(reduction)
        return factor in self.values.rows if dot is None else (factor, dot) in self.strips

    def with_factor(self, factor: Term, dot: Dot) -> Reduction:
        """A reduction by the dot that has the factor."""
        dots = self.fused.dots.get
        return next(r for r in self.fused.reductions if factor in r.args[0].args and dots(r) is dot)

    def factor(self, factor: Term, dot: Dot | None, env: Env) -> Tile:
        """A factor as it is multiplied: by a dot what is below its Cast, or was packed."""
        if dot is None:
            return self.values.evaluate(factor, env)
        strip = self.strips.get((factor, dot))
        if strip is not None:
            return self.values.load_row(strip, env, multiplied(factor, dot))
        while isinstance(factor, At):
            env, factor = self.values.move(factor, env), factor.args[0]
        (narrow,) = factor.args
        return self.values.evaluate(narrow, env)

    def is_fused(self, reduction: Reduction, x: Term) -> bool:
        """Is `x` a product that is multiplied and added in one step?"""
        fused = reduction.monoid is SUM and x.op == "Mul" and x.dtype.is_float
        return fused and not self.is_at_hand(x)

    def masked_operands(
        self, reduction: Reduction, x: Term, env: Env
    ) -> tuple[tuple[Tile, ...], Tile | None]:
        """The operands, and where they count if not everywhere."""
        if reduction not in self.along and self.is_fused(reduction, x):
            condition, pair = factors(x, self.is_at_hand)
            if condition is not None:
                tiles = tuple(self.operand(factor, env) for factor in pair)
                return tiles, self.values.evaluate(condition, env)
        return self.operands(reduction, x, env), None

    def is_at_hand(self, term: Term) -> bool:
        """Is it read from a buffer or from scratch?"""
        return term in self.fused.reads or term in self.values.rows

    # Sums of several products are written row by row, all sums of a row together: so few scalars
    # are held beside the rows of vectors, and no sum goes to the stack.
    def accumulate(
        self,
        stage: Sequence[Reduction],
        reduced: Sequence[Term],
        points: Sequence[Env],
        symbols: Sequence[Symbol],
        sums: Mapping[Reduction, Tile] | None = None,
    ) -> list[tuple[Tile | None, Tile, Tile]]:
        """The body of the innermost loop, for some points of the loops written out: of each
        reduction (the result where no loop is open, the accumulator before, after). `sums`: the
        accumulators, where they are at hand.
        """
        level = self.blocks.depth
        near = self.blocks.near
        first: dict[Term, Tile] = {}
        last: dict[Term, Tile] = {}
        for point in points:
            # What all sums read comes first, so that their steps stand together.
            found = []
            for reduction, x in zip(stage, reduced, strict=True):
                self.run_nested(x, point)
                found.append((reduction, x, *self.masked_operands(reduction, x, point)))
            for reduction, x, operands, mask in found:
                if reduction not in first and sums is not None:
                    given = sums[reduction]
                    first[reduction] = last[reduction] = (
                        self.blocks.new(given.axes, given.dtype, level) if symbols else given
                    )
                elif reduction not in first:
                    # One accumulator for all points, so with every tiled axis that any of them has.
                    touched = operands if mask is None else (*operands, mask)
                    carried = self.accumulated(x, touched, points).union(symbols) - near
                    first[reduction] = last[reduction] = (
                        self.blocks.new(carried, reduction.dtype, level)
                        if symbols
                        else self.values.identity(reduction.monoid, reduction.dtype)
                    )
                before = last[reduction]
                axes = {a for tile in (before, *operands) for a in tile.axes} - near
                after = self.blocks.new(axes, reduction.dtype, level)
                if len(operands) == 2:
                    dot = self.fused.dots.get(reduction) or multiply_add(reduction.dtype)
                    self.blocks.put(Contract(after, before, *operands, dot), level)
                else:
                    combine = reduction.monoid.combine
                    self.blocks.put(Map(after, combine, (before, *operands)), level)
                if mask is not None:
                    # The factors were not masked: the old sum stays where they do not count.
                    after = self.values.map("Select", (mask, after, before), reduction.dtype)
                last[reduction] = after
        return [(None if symbols else last[r], first[r], last[r]) for r in stage]

    def accumulated(self, x: Term, operands: Sequence[Tile], points: Sequence[Env]) -> set[Symbol]:
        """The axes of a carried accumulator: those of the operands, at any of the points."""
        axes = {a for tile in operands for a in tile.axes}
        for point in points[1:]:
            axes |= {symbol for a in x.axes for symbol in point.values[a].symbols()}
        return axes

    def written_out(self, loops: Sequence[LoopAxis], whole: Sequence[LoopAxis]) -> list[LoopAxis]:
        """The innermost loops, run whole, so short that their positions are written one by one."""
        found: list[LoopAxis] = []
        points, most = 1, min(WRITTEN_OUT, MOST_CODE // self.blocks.unrolled)
        for loop in reversed(loops):
            extent = loop.extent
            points *= extent.value if extent.is_const and extent.value else WRITTEN_OUT + 1
            # A loop that a guard cuts short has no literal positions to write out.
            if points > most or self.schedule.tile(loop).size > 1 or loop not in whole:
                break
            found.insert(0, loop)
        return found

    def rows_written(self, points: Sequence[Env]) -> None:
        """After a loop nest with these points inside: rows computed at all of them can be read."""
        for row in self.values.rows.values():
            row.ready = row.ready or all(
                self.values.canonical(row.offset(p)) in row.offsets for p in points
            )


def every_point(loops: Sequence[LoopAxis], env: Env) -> list[Env]:
    """The environments at all positions of loops of literal extents, in row-major order."""
    points = [env]
    for loop in loops:
        count = range(loop.extent.value)
        points = [point.bind(loop.positions(const(k))) for point in points for k in count]
    return points


def _below(reduction: Reduction, wanted: Set[Term], fused: Fused) -> bool:
    """Does the reduction use one of `wanted` (other than itself)?"""
    return not wanted.isdisjoint(below(reduction.args, fused.reads.__contains__))

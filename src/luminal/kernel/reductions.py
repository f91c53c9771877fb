"""Reductions as loop nests, which every placement is made of.

Reductions that wait for no other and run over the same axes are *siblings*: one loop nest, with an
accumulator each. The loops may be in tiles, short ones are written out position by position, and a
guard that all siblings have in common becomes the bounds of the loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import field

from luminal.algebra.terms import At, Reduction, Term, below
from luminal.base.dots import Dot, multiply_add
from luminal.base.records import dataclass
from luminal.hlir.monoid import SUM
from luminal.kernel.carries import close_loop
from luminal.kernel.environment import Env
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.fused import Fused
from luminal.kernel.guards import Range, factors, guarded, ranges
from luminal.kernel.loops import LoopAxis
from luminal.kernel.neighbours import in_order, walked
from luminal.kernel.schedule import SINGLE, Stage, TileChoice
from luminal.kernel.staged import Staged
from luminal.kernel.tile_ir import Contract, Map, Tile
from luminal.shape.expression import Expression, Symbol, const

MOST_CODE = 150  # vectors of a tile times positions: compile time grows faster than the code
# With literal positions the conditions at a picture's borders become simple or vanish, and weights
# are loaded once for all rows of a tile. Beyond nine positions the compile takes longer than the
# loop costs; three of nine were tried too, and were up to 1.17 times as slow where channels are
# many.
WRITTEN_OUT = 9  # positions of the innermost loops written one by one: a window of 3 by 3


class Reductions:
    """The reductions of a fused kernel that are still to be run.

    `sequential` are their loop axes, outermost first, and `tiles` those that are walked in tiles.
    """

    def __init__(
        self,
        fused: Fused,
        sequential: Sequence[LoopAxis],
        tiles: Mapping[Symbol, TileChoice],
        values: Evaluator,
    ) -> None:
        self.fused = fused
        self.sequential = sequential
        self.tiles = tiles
        self.values = values
        self.blocks = values.blocks
        self.along = walked(fused)
        self.packed: dict[tuple[Term, Dot], Staged] = {}  # factors as dots take them
        self.pending = [r for r in fused.reductions if not fused.is_nested(r)]
        # What a run of rows shares is loaded at its first row, whichever row it is needed for.
        self.shared: dict[Term, Mapping[Symbol, Expression]] = {}

    def run(self, env: Env) -> None:
        """All that is pending, siblings together, one nest after the other."""
        while self.pending:
            self.reduce(self.next_siblings(), env)

    def next_siblings(self) -> list[Reduction]:
        """The reductions to run next: all over the same axes, by words or not, that wait for no
        other.
        """
        waiting = set(self.pending)
        # In one loop nest, so that what several of them read is loaded once.
        ready = [r for r in self.pending if not _has_below(r, waiting, self.fused)]
        siblings = [r for r in ready if self.walk(r) == self.walk(ready[0])]
        self.pending = [r for r in self.pending if r not in siblings]
        return siblings

    def run_nested(self, x: Term, env: Env) -> None:
        """The sums inside of what is reduced, at a point of its loops."""
        inside = below((x,), self.fused.reads.__contains__)
        inner = [r for r in self.fused.reductions if r in inside and self.fused.is_nested(r)]
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

    def reduce(self, siblings: Sequence[Reduction], env: Env) -> None:
        """One loop nest over the axes of siblings; every accumulator is carried through it."""
        level = self.blocks.depth
        nest = self.laid_out(siblings, env)
        whole = [loop for loop in nest.loops if nest.is_whole(loop)]
        written = self.written_out(nest.loops, whole)
        inside = env
        symbols = nest.symbols[: len(nest.loops) - len(written)]
        for loop, symbol in zip(nest.loops, symbols, strict=False):
            inside = inside.bind(loop.positions(symbol))
            self.blocks.open(symbol, *nest.ranges[symbol], self.tile(loop))
        points = every_point(written, inside)
        if siblings[0] in self.along:
            near, points = self.neighbours(siblings[0], points)
            symbols.append(near)
        carries = self.accumulate(siblings, nest.reduced, points, symbols)
        for depth in range(len(symbols) - 1, -1, -1):
            carries = close_loop(self.values, siblings, carries, symbols[depth], inside=depth > 0)
        for reduction, (result, _, _) in zip(siblings, carries, strict=True):
            assert result is not None  # the loops are closed
            self.blocks.stack[level].known[self.values.key(reduction, env)] = result
        self.values.staged_at(points)

    def tile(self, loop: LoopAxis) -> TileChoice:
        """The tile of one of the reduced axes."""
        return self.tiles.get(loop.symbol, SINGLE)

    def laid_out(self, siblings: Sequence[Reduction], env: Env) -> Nest:
        """The loops over the axes of siblings, none of them open yet."""
        # All are named before one is opened: a guard tells the bounds of each.
        loops = [x for x in self.sequential if x.is_reduced(siblings[0], self.along)]
        symbols = [self.blocks.fresh_axis(self.values.canonical(x.extent)) for x in loops]
        for loop, symbol in zip(loops, symbols, strict=True):
            env = env.bind(loop.positions(symbol))
        return Nest(loops, symbols, *self.without_guard(siblings, symbols, env))

    def neighbours(self, reduction: Reduction, points: Sequence[Env]) -> tuple[Symbol, list[Env]]:
        """Opens the loop over the neighbours that a dot multiplies together; gives its axis, and
        the points in it.
        """
        along, count = self.along[reduction], self.fused.dots[reduction].k
        near = self.blocks.open_neighbours(count)
        return near, [point.bind({along: point.values[along] + near}) for point in points]

    def without_guard(
        self, siblings: Sequence[Reduction], symbols: Sequence[Symbol], env: Env
    ) -> tuple[list[Term], dict[Symbol, Range]]:
        """The reduced values and the ranges of the loops: cut to where one common guard holds."""
        extents = {s: self.values.canonical(s.extent) for s in symbols if s.extent is not None}
        whole = {symbol: (const(0), extent) for symbol, extent in extents.items()}
        guards = [guarded(reduction) for reduction in siblings]
        plain = [reduction.args[0] for reduction in siblings]
        # A row that is written on the way must be written whole, and siblings share their loops: so
        # a loop may stop early only where nothing but these sums would have been computed.
        pending = {t for t, room in self.values.staged.items() if not room.is_ready}
        if any(f is None for f in guards) or any(
            _has_below(r, pending, self.fused) for r in siblings
        ):
            return plain, whole
        conditions = {f[0] for f in guards if f is not None}
        # What is read as it was stored, mask and all, has nothing behind the mask in this kernel.
        if len(conditions) > 1 or any(x in self.fused.reads for x in plain):
            return plain, whole
        condition = self.values.canonical(conditions.pop().attrs.substitute(env.values))
        cut = ranges(condition, extents, self.blocks.tiled)
        if cut is None:
            return plain, whole
        return [f[1] for f in guards if f is not None], cut

    def operands(self, reduction: Reduction, x: Term, env: Env) -> tuple[Tile, ...]:
        """The reduced value, or the two factors of a contraction."""
        dot = self.fused.dots.get(reduction)
        if dot is not None:
            return tuple(self.factor(factor, dot, env) for factor in in_order(x.args, dot))
        read = x.args if self.is_fused(reduction, x) else (x,)
        return tuple(self.operand(term, env) for term in read)

    def operand(self, term: Term, env: Env) -> Tile:
        """A reduced value or a factor, which a run of rows may have in common."""
        first = self.shared.get(term)
        return self.values.evaluate(term, env if first is None else env.bind(first))

    def is_packed(self, factor: Term, reduction: Reduction) -> bool:
        """Does a factor lie in a strip, as the reduction takes it?"""
        dot = self.fused.dots.get(reduction)
        return factor in self.values.staged if dot is None else (factor, dot) in self.packed

    def user(self, stage: Stage) -> Reduction:
        """A reduction that multiplies a staged factor as it is staged."""
        users = self.fused.products_of(stage.term)
        return next(r for r in users if self.fused.dots.get(r) is stage.dot)

    def words(self, stage: Stage) -> tuple[Symbol | None, int]:
        """The axis along which so many neighbours of a staged factor are multiplied together."""
        return (None, 1) if stage.dot is None else (self.along[self.user(stage)], stage.dot.k)

    def know(self, stage: Stage, room: Staged) -> None:
        """Has the factor read where it is staged, from here on."""
        room.is_ready = True
        if stage.dot is None:
            self.values.staged[stage.term] = room
        else:
            self.packed[stage.term, stage.dot] = room

    def elements(
        self, stage: Stage, written: Sequence[LoopAxis], env: Env
    ) -> Iterator[tuple[Env, Tile]]:
        """A factor at the positions of loops that are written out, at all neighbours of a word."""
        points = every_point(written, env)
        if stage.dot is not None:
            _, points = self.neighbours(self.user(stage), points)
        for point in points:
            yield point, self.factor(stage.term, stage.dot, point)

    def factor(self, factor: Term, dot: Dot | None, env: Env) -> Tile:
        """A factor as it is multiplied: by a dot what is below its Cast, or was packed."""
        if dot is None:
            return self.values.evaluate(factor, env)
        room = self.packed.get((factor, dot))
        if room is not None:
            return self.values.load_staged(room, env)
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
        return term in self.fused.reads or term in self.values.staged

    # Sums of several products are written row by row, all sums of a row together: so few scalars
    # are held beside the rows of vectors, and no sum goes to the stack.
    def accumulate(
        self,
        siblings: Sequence[Reduction],
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
            waiting = []
            for reduction, x in zip(siblings, reduced, strict=True):
                self.run_nested(x, point)
                waiting.append((reduction, x, *self.masked_operands(reduction, x, point)))
            for reduction, x, operands, mask in waiting:
                if reduction not in first and sums is not None:
                    start = sums[reduction]
                    first[reduction] = last[reduction] = (
                        self.blocks.new(start.axes, start.dtype, level) if symbols else start
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
        return [(None if symbols else last[r], first[r], last[r]) for r in siblings]

    def accumulated(self, x: Term, operands: Sequence[Tile], points: Sequence[Env]) -> set[Symbol]:
        """The axes of a carried accumulator: those of the operands, at any of the points."""
        axes = {a for tile in operands for a in tile.axes}
        for point in points[1:]:
            axes |= {symbol for a in x.axes for symbol in point.values[a].symbols()}
        return axes

    def written_out(self, loops: Sequence[LoopAxis], whole: Sequence[LoopAxis]) -> list[LoopAxis]:
        """The innermost loops, run whole, so short that their positions are written one by one."""
        written: list[LoopAxis] = []
        points, most = 1, min(WRITTEN_OUT, MOST_CODE // self.blocks.unrolled)
        for loop in reversed(loops):
            extent = loop.extent
            points *= extent.value if extent.is_const and extent.value else WRITTEN_OUT + 1
            # A loop that a guard cuts short has no literal positions to write out.
            if points > most or self.tile(loop).size > 1 or loop not in whole:
                break
            written.insert(0, loop)
        return written


@dataclass(slots=True)
class Nest:
    """The loops of siblings, outermost first, each with its axis and the range that it walks, and
    what they reduce there.
    """

    loops: list[LoopAxis]
    symbols: list[Symbol]
    reduced: list[Term]
    ranges: dict[Symbol, Range] = field(default_factory=dict)

    def is_whole(self, loop: LoopAxis) -> bool:
        """Does no guard cut the loop short?"""
        symbol = self.symbols[self.loops.index(loop)]
        return self.ranges[symbol] == (const(0), symbol.extent)


def every_point(loops: Sequence[LoopAxis], env: Env) -> list[Env]:
    """The environments at all positions of loops of literal extents, in row-major order."""
    points = [env]
    for loop in loops:
        count = range(loop.extent.value)
        points = [point.bind(loop.positions(const(k))) for point in points for k in count]
    return points


def _has_below(reduction: Reduction, wanted: Set[Term], fused: Fused) -> bool:
    """Does the reduction use one of `wanted` (other than itself)?"""
    return not wanted.isdisjoint(below(reduction.args, fused.reads.__contains__))

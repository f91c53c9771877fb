"""What a block of steps adds to a cascade by fragments (see `cascade_fragments.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from luminal.algebra.terms import Reduction, Term
from luminal.base.dots import Dot
from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.hlir.monoid import MAXIMUM, Monoid
from luminal.kernel.carried import joint, tiled
from luminal.kernel.cascade import Member, Rate
from luminal.kernel.cascade_sweep import Sweep
from luminal.kernel.environment import Env
from luminal.kernel.loops import LoopAxis
from luminal.kernel.tile_ir import Contract, Reduce, Retile, Tile
from luminal.shape.expression import ZERO, Expression, all_of, opaque

if TYPE_CHECKING:
    from luminal.kernel.cascade_fragments import Fragments

DEPTH, PLACE = opaque("depth"), opaque("place")
"""The position along the sum of a product, and along its rows or columns, in a block."""
Words = tuple[Reduction, int, int]
"""What lanes have of a sum's first factor: of which part of it, from which step of a block on."""
State = dict[Any, Tile]  # by Reduction, by Words, or by Greatest
"""Results so far, or in the end; and words of factors whose products are still to be added."""


@dataclass(frozen=True, slots=True)
class Greatest:
    """The greatest magnitude so far of a scaled factor in a row, of which it is a share."""

    factor: Term


class Step:
    """A block of steps of a sweep, from `first` on, for the rows at `env`."""

    def __init__(self, placement: Fragments, sweep: Sweep, first: Expression, tiles: State) -> None:
        self.own = placement
        self.sweep = sweep
        self.first = first
        self.known = tiles  # results of sweeps before, then the maximum so far: of rows
        self.arithmetic = placement.arithmetic

    def run(self, before: State) -> State:
        """The results so far with what the steps add."""
        after, moves, factors = self.weighed(before, self.scores())
        for m in self.sweep.wide:
            after[m.term] = self.moved(m, before[m.term], moves)
        return self.end(after | self.words(factors))

    def begin(self, before: State) -> State:
        """The results of a first block, and words of factors that are still to be multiplied."""
        after, _, factors = self.weighed(before, self.scores())
        return {**before, **after, **self.words(factors)}

    def run_on(self, before: State) -> State:
        """The results so far with a further block; products of the one before run on meanwhile."""
        placement = self.own
        scores = self.scores(None)
        sums = self.end(before, 1)
        after, moves, factors = self.weighed(sums, scores)
        placement.await_products(0)  # which read the words that there were
        moved = {m.term: self.moved(m, sums[m.term], moves) for m in self.sweep.wide}
        return {**after, **moved, **self.words(factors)}

    def end(self, before: State, running: int = 0) -> State:
        """The results with the products of which there are words; so many batches may run on."""
        after = {r: tile for r, tile in before.items() if not isinstance(r, tuple)}
        with self.own.batch(running):
            for m in self.sweep.wide:
                after[m.term] = self.added(m.term, before)
        return after

    def scores(self, running: int | None = 0) -> dict[Term, Tile]:
        """The contractions of the steps; so many batches may run on, or all."""
        with self.own.batch(running):
            return {r: self.contracted(r) for r in self.sweep.needed()}

    def weighed(
        self, before: State, scores: dict[Term, Tile]
    ) -> tuple[State, dict[Rate | Term, Tile], dict[Term, Tile]]:
        """The results that are a number a row, what turns sums into those under the new maxima (and
        greatest factors), and the factors of the others.
        """
        placement, sweep = self.own, self.sweep
        after: State = {}
        values = [partial(self.masked, greatest) for greatest in sweep.maxima]
        tiles = self.mapped(
            scores, [(r.dtype, x) for r, x in zip(sweep.maxima, values, strict=True)]
        )
        for greatest, tile in zip(sweep.maxima, tiles, strict=True):
            (x,) = greatest.args
            scores[x] = tile
            new = self.folded(greatest.monoid, before[greatest], tile)
            after[greatest] = new
            self.known[greatest] = self.arithmetic.safe(new)
        moves: dict[Rate | Term, Tile] = {
            rate: self.arithmetic.moved(rate, before[rate.maximum], after[rate.maximum])
            for rate in sweep.rates
        }
        narrow = sweep.narrow
        wanted = [(m.term.dtype, partial(self.masked, m.term)) for m in narrow]
        factors = dict.fromkeys(placement.found.sums[m.term][0] for m in sweep.wide)
        wanted += [(x.dtype, partial(self.factor, x)) for x in factors]
        tiles = self.mapped(scores, wanted)
        for m, tile in zip(narrow, tiles, strict=False):
            so_far = self.rescaled(m, before[m.term], moves)
            after[m.term] = self.folded(m.term.monoid, so_far, tile)
        made_of = dict(zip(factors, tiles[len(narrow) :], strict=True))
        return after, moves, self.scaled(made_of, before, after, moves)

    def scaled(
        self,
        factors: Mapping[Term, Tile],
        before: State,
        after: State,
        moves: dict[Rate | Term, Tile],
    ) -> dict[Term, Tile]:
        """The factors, scaled ones as shares of the greatest of their rows so far; notes these, and
        what turns sums into those of the new shares.
        """
        apply, shares = self.arithmetic.apply, dict(factors)
        for x in (x for x in factors if x in self.own.found.scaled):
            greatest = Greatest(x)
            (sizes,) = self.mapped({x: factors[x]}, [(x.dtype, partial(self.magnitude, x))])
            after[greatest] = self.folded(MAXIMUM, before[greatest], sizes)
            inverse = apply("Recip", after[greatest])
            moves[x] = apply("Mul", before[greatest], inverse)
            (shares[x],) = self.mapped(
                {x: factors[x]}, [(x.dtype, partial(self.share, x, inverse))]
            )
        return shares

    # --- products

    def contracted(self, r: Reduction) -> Tile:
        """A contraction of the rows and the steps."""
        placement, dot = self.own, self.own.dot
        rows, steps = (placement.blocks_at[r, side] for side in (0, 1))
        depth = rows.depth[1]
        # Products that run on are written out: the first one is added to nothing.
        size = dot.k if dot.is_from_memory else depth
        result = placement.values.constant(0, r.dtype)
        axes = tiled([*placement.rows, *placement.steps])
        for first in range(0, depth, size):
            k = placement.sides("k", size)
            with placement.carried_through([*placement.steps, *k], [result], [axes]) as held:
                a, b = (
                    placement.values.load_staged(
                        placement.rooms[block],
                        Env({DEPTH: first + joint(k), PLACE: joint(place)}),
                        placement.turn,
                    )
                    for block, place in ((rows, placement.rows), (steps, placement.steps))
                )
                held.next = [self.contract(held.inner[0], a, b, dot)]
            (result,) = held.results
        return result

    def contract(self, acc: Tile, a: Tile, b: Tile, dot: Dot) -> Tile:
        placement, level = self.own, self.own.blocks.depth
        out = placement.tile(acc.axes, acc.dtype, level)
        placement.blocks.put(Contract(out, acc, a, b, dot), level)
        return out

    def added(self, r: Reduction, state: State) -> Tile:
        """A sum with further axes, with the products of what there are words of."""
        placement = self.own
        loops, axes, block = (
            placement.further[placement.found.further(r)],
            placement.axes(r),
            placement.blocks_at[r, 1],
        )
        words = [key for key in state if isinstance(key, tuple) and key[0] is r]
        every = [state[r], *(state[key] for key in words)]
        k = placement.depth
        with placement.carried_through([k], every, [axes, *map(placement.axes, words)]) as held:
            before, *factors = held.inner
            with placement.carried_through(loops, [before], [axes]) as inside:
                (after,) = inside.inner
                # Block by block of the sum: which results of the lanes are its factor is no loop's.
                for (_, _, first), factor in zip(words, factors, strict=True):
                    here = Env({DEPTH: first + k.axis, PLACE: joint(loops)})
                    room, turn = placement.rooms[block], placement.turn_of_words
                    b = placement.values.load_staged(room, here, turn)
                    after = self.contract(after, factor, b, placement.dot)
                inside.next = [after]
            held.next = [*inside.results, *factors]
        return held.results[0]

    def moved(self, member: Member, total: Tile, moves: Mapping[Rate | Term, Tile]) -> Tile:
        """A sum with further axes under the new maximum."""
        ways: tuple[Rate | Term | None, ...] = member.rate, self.own.found.sums[member.term][0]
        for way in ways:
            total = self.own.times(member.term, total, None if way is None else moves.get(way))
        return total

    def retiled(self, value: Tile, first: int) -> Tile:
        """What lanes have of rows and steps as the first factor of a product, from a step on."""
        placement, level = self.own, self.own.blocks.depth
        axes = [*tiled(placement.rows), placement.depth.axis]
        out = placement.tile(axes, placement.dot.a, level)
        columns = tuple(tiled(placement.steps))
        placement.blocks.put(Retile(out, value, columns, first), level)
        return out

    # --- values of rows and steps

    def words(self, factors: Mapping[Term, Tile]) -> State:
        """What lanes have of factors as those of products."""
        placement = self.own
        parts = placement.parts_of(self.sweep)
        wanted = [(placement.dot.a, partial(self.part, r, n)) for r, n in parts]
        tiles = dict(zip(parts, self.mapped(factors, wanted), strict=True))
        return {
            (r, part, first): self.retiled(tiles[r, part], first)
            for r, part, first in placement.words_of(self.sweep)
        }

    def mapped(
        self, scores: Mapping[Term, Tile], wanted: Sequence[tuple[DType, Callable[[Env], Tile]]]
    ) -> list[Tile]:
        """What is computed of given values, at all positions of the block."""
        placement, axes = self.own, tiled([*self.own.rows, *self.own.steps])
        empty = [placement.values.constant(0, dtype) for dtype, _ in wanted]
        before = [*scores.values(), *empty]
        with placement.carried_through(placement.steps, before, [axes] * len(before)) as held:
            env = self.at_steps()
            place = Env({PLACE: joint(placement.steps), DEPTH: ZERO})
            for term in placement.lines_read(self.sweep):
                room = placement.rooms[placement.lines[term]]
                line = placement.values.load_staged(room, place, placement.turn)
                placement.know(term, env, line)
            for r, tile in self.known.items():
                placement.know(r, env, tile)
            for term, tile in zip(scores, held.inner, strict=False):
                placement.know(term, env, tile)
            held.next = [*held.inner[: len(scores)], *(make(env) for _, make in wanted)]
        return held.results[len(scores) :]

    def at_steps(self) -> Env:
        """The point at which the loops over rows and steps are."""
        rows, steps = self.own.at_rows(), self.own.found.steps
        position = self.first + joint(self.own.steps)
        guard = all_of([rows.guard, self.own.unproved(position, steps)])
        return Env({**rows.values, **LoopAxis(steps[0], steps).positions(position)}, guard)

    def masked(self, r: Reduction, env: Env) -> Tile:
        """What is reduced, nothing beyond the last step."""
        value = self.own.values.evaluate(r.args[0], env)
        return self.inside(env, value, self.own.values.identity(r.monoid, r.dtype))

    def factor(self, term: Term, env: Env) -> Tile:
        """A factor, nothing beyond the last step."""
        values = self.own.values
        return self.inside(env, values.evaluate(term, env), values.constant(0, term.dtype))

    def magnitude(self, term: Term, env: Env) -> Tile:
        """How far a factor is from 0."""
        value, apply = self.own.values.evaluate(term, env), self.arithmetic.apply
        minus = self.own.values.constant(-1, term.dtype)
        return apply("Maximum", value, apply("Mul", value, minus))

    def share(self, term: Term, inverse: Tile, env: Env) -> Tile:
        """A factor by what its row's is the inverse of."""
        return self.arithmetic.apply("Mul", self.own.values.evaluate(term, env), inverse)

    def part(self, r: Reduction, part: int, env: Env) -> Tile:
        """A part of a sum's factor: in the dot's dtype what is left behind the parts before."""
        placement, apply = self.own, self.arithmetic.apply
        value = placement.values.evaluate(placement.found.sums[r][0], env)
        for n in range(part + 1):
            rounded = placement.values.map("Cast", (value,), placement.dot.a)
            if n < part:
                wide = placement.values.map("Cast", (rounded,), value.dtype)
                minus = placement.values.constant(-1, value.dtype)
                value = apply("Add", value, apply("Mul", wide, minus))
        return rounded

    def inside(self, env: Env, value: Tile, nothing: Tile) -> Tile:
        """A value where its step is before the last one's end."""
        position = self.first + joint(self.own.steps)
        return self.own.where(self.own.unproved(position, self.own.found.steps), value, nothing)

    # --- values of rows

    def folded(self, monoid: Monoid, before: Tile, value: Tile) -> Tile:
        """A result so far, and the values of a block of steps, as one."""
        placement, level = self.own, self.own.blocks.depth
        for axis in tiled(placement.steps):
            rest = [a for a in value.axes if a is not axis]
            out = placement.tile(rest, value.dtype, level)
            placement.blocks.put(Reduce(out, monoid.combine, value, axis), level)
            value = out
        return self.arithmetic.apply(monoid.combine, before, value)

    def rescaled(self, member: Member, before: Tile, moves: Mapping[Rate | Term, Tile]) -> Tile:
        """A result so far, as it is under the new maximum."""
        if member.rate is None:
            return before
        return self.arithmetic.apply("Mul", before, moves[member.rate])

"""What a block of steps adds to a cascade by fragments (see `cascade_fragments.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from luminal.algebra.terms import Reduction, Term
from luminal.base.dots import Dot
from luminal.base.dtypes import DType
from luminal.hlir.monoid import Monoid
from luminal.kernel.carried import joint, tiled
from luminal.kernel.cascade import Member, Rate
from luminal.kernel.cascade_sweep import Sweep
from luminal.kernel.environment import Env
from luminal.kernel.loops import LoopAxis
from luminal.kernel.tile_ir import Contract, Reduce, Retile, Tile
from luminal.shape.expression import Expression, Symbol, all_of, opaque

if TYPE_CHECKING:
    from luminal.kernel.cascade_fragments import Fragments

DEPTH, PLACE = opaque("depth"), opaque("place")
"""The position along the sum of a product, and along its rows or columns, in a block."""
State = dict[Reduction, Tile]
"""Results so far, or in the end."""


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
        placement, sweep = self.own, self.sweep
        with placement.batch():
            scores: dict[Term, Tile] = {r: self.contracted(r) for r in sweep.needed()}
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
        moves = {
            rate: self.arithmetic.moved(rate, before[rate.maximum], after[rate.maximum])
            for rate in sweep.rates
        }
        narrow, wide = sweep.narrow, sweep.wide
        wanted = [(m.term.dtype, partial(self.masked, m.term)) for m in narrow]
        for m in wide:
            factor = partial(self.factor, placement.found.sums[m.term][0])
            wanted += [(placement.dot.a, partial(factor, n)) for n in range(placement.parts)]
        tiles = self.mapped(scores, wanted)
        for m, tile in zip(narrow, tiles, strict=False):
            so_far = self.rescaled(m, before[m.term], moves)
            after[m.term] = self.folded(m.term.monoid, so_far, tile)
        for n, m in enumerate(wide):
            start = len(narrow) + n * placement.parts
            move = None if m.rate is None else moves[m.rate]
            after[m.term] = self.added(
                m.term, before[m.term], move, tiles[start : start + placement.parts]
            )
        return after

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

    def added(self, r: Reduction, before: Tile, move: Tile | None, parts: Sequence[Tile]) -> Tile:
        """A sum with further axes, in its new scale, and what a block of steps adds to it."""
        placement, dot = self.own, self.own.dot
        loops, axes, block = (
            placement.further[placement.found.further(r)],
            placement.axes(r),
            placement.blocks_at[r, 1],
        )
        total = placement.times(r, before, move)
        # Block by block of the sum: which results of the lanes are its factor is no loop's.
        firsts = range(0, placement.tiling.steps, dot.k)
        (_, k) = placement.sides("k", dot.k)
        with placement.carried_through([k], [total], [axes]) as held:
            factors = [[self.retiled(part, k.axis, first) for part in parts] for first in firsts]
            with placement.batch(), placement.carried_through(loops, held.inner, [axes]) as inside:
                (after,) = inside.inner
                for first, of_parts in zip(firsts, factors, strict=True):
                    here = Env({DEPTH: first + k.axis, PLACE: joint(loops)})
                    b = placement.values.load_staged(placement.rooms[block], here, placement.turn)
                    for a in of_parts:
                        after = self.contract(after, a, b, dot)
                inside.next = [after]
            held.next = inside.results
        return held.results[0]

    def retiled(self, value: Tile, k: Symbol, first: int) -> Tile:
        """What lanes have of rows and steps as the first factor of a product, from a step on."""
        placement, level = self.own, self.own.blocks.depth
        out = placement.tile([*tiled(placement.rows), k], placement.dot.a, level)
        columns = tuple(tiled(placement.steps))
        placement.blocks.put(Retile(out, value, columns, first), level)
        return out

    # --- values of rows and steps

    def mapped(
        self, scores: Mapping[Term, Tile], wanted: Sequence[tuple[DType, Callable[[Env], Tile]]]
    ) -> list[Tile]:
        """What is computed of given values, at all positions of the block."""
        placement, axes = self.own, tiled([*self.own.rows, *self.own.steps])
        empty = [placement.values.constant(0, dtype) for dtype, _ in wanted]
        before = [*scores.values(), *empty]
        with placement.carried_through(placement.steps, before, [axes] * len(before)) as held:
            env = self.at_steps()
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

    def factor(self, term: Term, part: int, env: Env) -> Tile:
        """A part of a factor: in the dot's dtype what is left of it behind the parts before."""
        placement, apply = self.own, self.arithmetic.apply
        value = self.inside(
            env, placement.values.evaluate(term, env), placement.values.constant(0, term.dtype)
        )
        for n in range(part + 1):
            rounded = placement.values.map("Cast", (value,), placement.dot.a)
            if n < part:
                wide = placement.values.map("Cast", (rounded,), term.dtype)
                minus = placement.values.constant(-1, term.dtype)
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

    def rescaled(self, member: Member, before: Tile, moves: Mapping[Rate, Tile]) -> Tile:
        """A result so far, as it is under the new maximum."""
        if member.rate is None:
            return before
        return self.arithmetic.apply("Mul", before, moves[member.rate])

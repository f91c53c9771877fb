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
from luminal.kernel.tile_ir import Contract, Reduce, Retile, Tile
from luminal.shape.expression import Expression, all_of, opaque

if TYPE_CHECKING:
    from luminal.kernel.cascade_fragments import Fragments

DEPTH, PLACE = opaque("depth"), opaque("place")
"""The position along the sum of a product, and along its rows or columns, in a block."""
State = dict[Reduction, Tile]
"""Results so far, or in the end."""


class Step:
    """A block of steps of a sweep, from `first` on, for the rows at `env`."""

    def __init__(self, own: Fragments, sweep: Sweep, first: Expression, known: State) -> None:
        self.own = own
        self.sweep = sweep
        self.first = first
        self.known = known  # results of sweeps before, then the maximum so far: of rows
        self.arithmetic = own.arithmetic

    def run(self, before: State) -> State:
        """The results so far with what the steps add."""
        own, sweep = self.own, self.sweep
        given: dict[Term, Tile] = {r: self.contracted(r) for r in sweep.needed()}
        after: State = {}
        values = [partial(self.masked, greatest) for greatest in sweep.maxima]
        tiles = self.mapped(
            given, [(r.dtype, x) for r, x in zip(sweep.maxima, values, strict=True)]
        )
        for greatest, tile in zip(sweep.maxima, tiles, strict=True):
            (x,) = greatest.args
            given[x] = tile
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
            factor = partial(self.factor, own.found.sums[m.term][0])
            wanted += [(own.dot.a, partial(factor, n)) for n in range(own.parts)]
        tiles = self.mapped(given, wanted)
        for m, tile in zip(narrow, tiles, strict=False):
            so_far = self.rescaled(m, before[m.term], moves)
            after[m.term] = self.folded(m.term.monoid, so_far, tile)
        for n, m in enumerate(wide):
            start = len(narrow) + n * own.parts
            move = None if m.rate is None else moves[m.rate]
            after[m.term] = self.added(
                m.term, before[m.term], move, tiles[start : start + own.parts]
            )
        return after

    # --- products

    def contracted(self, r: Reduction) -> Tile:
        """A contraction of the rows and the steps."""
        own, dot = self.own, self.own.dot
        rows, steps = (own.blocks_at[r, side] for side in (0, 1))
        k = own.sides("k", rows.depth[1])
        zero = own.values.constant(0, r.dtype)
        axes = tiled([*own.rows, *own.steps])
        with own.carried_through([*own.steps, *k], [zero], [axes]) as held:
            a, b = (
                own.values.load_staged(
                    own.rooms[block], Env({DEPTH: joint(k), PLACE: joint(place)}), own.turn
                )
                for block, place in ((rows, own.rows), (steps, own.steps))
            )
            held.next = [self.contract(held.inner[0], a, b, dot)]
        return held.results[0]

    def contract(self, acc: Tile, a: Tile, b: Tile, dot: Dot) -> Tile:
        own, level = self.own, self.own.blocks.depth
        out = own.tile(acc.axes, acc.dtype, level)
        own.blocks.put(Contract(out, acc, a, b, dot), level)
        return out

    def added(self, r: Reduction, before: Tile, move: Tile | None, parts: Sequence[Tile]) -> Tile:
        """A sum with further axes, in its new scale, and what a block of steps adds to it."""
        own, dot = self.own, self.own.dot
        loops, axes, block = own.further[own.found.further(r)], own.axes(r), own.blocks_at[r, 1]
        columns = own.steps[0].axis, own.steps[1].axis
        with own.carried_through(loops, [before], [axes]) as held:
            total = held.inner[0]
            if move is not None:
                total = self.arithmetic.apply("Mul", total, move)
            # Block by block of the sum: which results of the lanes are its factor is no loop's.
            for first in range(0, own.tiling.steps, dot.k):
                (_, k) = own.sides("k", dot.k)
                with own.carried_through([k], [total], [axes]) as inside:
                    here = Env({DEPTH: first + k.axis, PLACE: joint(loops)})
                    b = own.values.load_staged(own.rooms[block], here, own.turn)
                    (after,) = inside.inner
                    for part in parts:
                        level = own.blocks.depth
                        a = own.tile([*tiled(own.rows), k.axis], dot.a, level)
                        own.blocks.put(Retile(a, part, columns, first), level)
                        after = self.contract(after, a, b, dot)
                    inside.next = [after]
                (total,) = inside.results
            held.next = [total]
        return held.results[0]

    # --- values of rows and steps

    def mapped(
        self, given: Mapping[Term, Tile], wanted: Sequence[tuple[DType, Callable[[Env], Tile]]]
    ) -> list[Tile]:
        """What is computed of given values, at all positions of the block."""
        own, axes = self.own, tiled([*self.own.rows, *self.own.steps])
        empty = [own.values.constant(0, dtype) for dtype, _ in wanted]
        before = [*given.values(), *empty]
        with own.carried_through(own.steps, before, [axes] * len(before)) as held:
            env = self.at_steps()
            for r, tile in self.known.items():
                own.know(r, env, tile)
            for term, tile in zip(given, held.inner, strict=False):
                own.know(term, env, tile)
            held.next = [*held.inner[: len(given)], *(make(env) for _, make in wanted)]
        return held.results[len(given) :]

    def at_steps(self) -> Env:
        """The point at which the loops over rows and steps are."""
        rows, step = self.own.at_rows(), self.own.found.step
        position = self.first + joint(self.own.steps)
        guard = all_of([rows.guard, self.own.unproved(position, (step,))])
        return Env({**rows.values, step: position}, guard)

    def masked(self, r: Reduction, env: Env) -> Tile:
        """What is reduced, nothing beyond the last step."""
        value = self.own.values.evaluate(r.args[0], env)
        return self.inside(env, value, self.own.values.identity(r.monoid, r.dtype))

    def factor(self, term: Term, part: int, env: Env) -> Tile:
        """A part of a factor: in the dot's dtype what is left of it behind the parts before."""
        own, apply = self.own, self.arithmetic.apply
        value = self.inside(env, own.values.evaluate(term, env), own.values.constant(0, term.dtype))
        for n in range(part + 1):
            rounded = own.values.map("Cast", (value,), own.dot.a)
            if n < part:
                wide = own.values.map("Cast", (rounded,), term.dtype)
                minus = own.values.constant(-1, term.dtype)
                value = apply("Add", value, apply("Mul", wide, minus))
        return rounded

    def inside(self, env: Env, value: Tile, nothing: Tile) -> Tile:
        """A value where its step is before the last one's end."""
        step = self.own.found.step
        return self.own.where(self.own.unproved(env.values[step], (step,)), value, nothing)

    # --- values of rows

    def folded(self, monoid: Monoid, before: Tile, value: Tile) -> Tile:
        """A result so far, and the values of a block of steps, as one."""
        own, level = self.own, self.own.blocks.depth
        for axis in tiled(own.steps):
            rest = [a for a in value.axes if a is not axis]
            out = own.tile(rest, value.dtype, level)
            own.blocks.put(Reduce(out, monoid.combine, value, axis), level)
            value = out
        return self.arithmetic.apply(monoid.combine, before, value)

    def rescaled(self, member: Member, before: Tile, moves: Mapping[Rate, Tile]) -> Tile:
        """A result so far, as it is under the new maximum."""
        if member.rate is None:
            return before
        return self.arithmetic.apply("Mul", before, moves[member.rate])

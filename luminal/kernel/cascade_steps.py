"""A cascade whose vectors hold steps: for few lanes, and where x lies along the steps.

Contractions are dot products of rows, or run over vectors of steps where their operand lies so; the
block of x is (lanes, steps), the maximum and plain sums are folded across their vectors.
"""

from __future__ import annotations

from luminal.algebra.terms import Term
from luminal.hlir.monoid import MAXIMUM, SUM
from luminal.kernel.cascade import Cascade, Member
from luminal.kernel.cascade_pass import Pass
from luminal.kernel.cascade_work import SINGLE, Blocking, contiguous
from luminal.kernel.evaluate import Env
from luminal.kernel.group import Group
from luminal.kernel.schedule import TileChoice
from luminal.kernel.tile_ir import Tile

DOT_TILE = 4  # lanes and steps of a tile of dot products: 16 accumulators
CHAINS = 2  # vectors folded side by side


class StepsPass(Pass):
    def __init__(self, group: Group, cascade: Cascade, blocking: Blocking) -> None:
        super().__init__(group, cascade, blocking)
        self.lane_tile = SINGLE
        self.vectors = TileChoice(CHAINS, blocking.width)

    def maximise(self, env: Env) -> None:
        """The contractions, to scratch; x is computed from them by vectors."""
        axes = (*self.lane_axes, self.step)
        rows = {r: self.row(axes, r.dtype) for r in self.cascade.inner}
        self.pending = list(self.cascade.inner)
        dot_tile = TileChoice(DOT_TILE if self.lane_axes else 2 * DOT_TILE)
        while self.pending:
            (first, *_) = stage = self.next_stage()
            dots = not all(self.lies_along_steps(r) for r in stage)
            tile = dot_tile if dots else self.vectors
            *_, along = (x for x in self.schedule.sequential if x.members[0] in first.attrs)
            self.tiles[along.symbol] = TileChoice(1, self.blocking.width if dots else 1)
            lanes = TileChoice(DOT_TILE)
            with self.loops(self.lane_axes, env, lanes) as outside:
                inside = self.open(self.step, outside, tile)
                self.reduce(stage, inside)
                for reduction in stage:
                    value = self.values.evaluate(reduction, inside)
                    self.write(rows[reduction], inside, value)
                self.blocks.close()
            self.keep({r: rows[r] for r in stage})

    def lies_along_steps(self, reduction: Term) -> bool:
        return contiguous(self.group, reduction, self.step)

    def move_maximum(self, env: Env) -> None:
        self.block = self.row((*self.lane_axes, self.step))
        with self.loops(self.lane_axes, env) as lanes:
            old = self.read(self.maximum, lanes)
            inside = self.open(self.step, lanes, self.vectors)
            value = self.values.evaluate(self.x, inside)
            self.write(self.block, inside, value)
            (new,) = self.fold(MAXIMUM, [old], [(value,)])
            for rate, row in self.rescale.items():
                self.write(row, lanes, self.moved(rate, old, new))
            self.write(self.maximum, lanes, new)
        self.keep({self.x: self.block})

    def exponentiate(self, env: Env) -> None:
        rows = self.exponential_rows(self.block, (*self.lane_axes, self.step))
        plain = [m for m in self.cascade.members if not self.extra(m.term)]
        with self.loops(self.lane_axes, env) as lanes:
            self.know(self.cascade.maximum, lanes, self.safe(self.read(self.maximum, lanes)))
            inside = self.open(self.step, lanes, self.vectors)
            tiles = [self.values.evaluate(e, inside) for e in rows]
            values = [(self.values.evaluate(m.term.args[0], inside),) for m in plain]
            for row, tile in zip(rows.values(), tiles, strict=True):
                self.write(row, inside, tile)
            zeros = [self.values.identity(SUM, self.dtype)] * len(plain)
            totals = self.fold(SUM, zeros, values)
            for member, total in zip(plain, totals, strict=True):
                self.write(self.sums[member], lanes, self.added(member, lanes, total))
        self.keep(rows)

    def added(self, member: Member, lanes: Env, total: Tile) -> Tile:
        """The sum so far, rescaled, and the block's."""
        factor = self.read(self.rescale[member.base, member.factor], lanes)
        return self.apply(
            "Add", self.apply("Mul", self.read(self.sums[member], lanes), factor), total
        )

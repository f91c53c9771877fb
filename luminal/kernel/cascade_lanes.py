"""A cascade whose vectors hold positions of the lane axis: the maximum and sums are vertical.

What is contracted is packed lane by lane once; the other factor is read as it lies. The block of x
is (steps, lanes), the panel that the sums with further axes want.
"""

from __future__ import annotations

from luminal.algebra.terms import Term
from luminal.dtypes import bool_
from luminal.hlir.monoid import MAXIMUM, SUM
from luminal.kernel.cascade import Cascade
from luminal.kernel.cascade_pass import Pass
from luminal.kernel.cascade_work import Blocking, contiguous
from luminal.kernel.evaluate import Env
from luminal.kernel.group import Group
from luminal.kernel.schedule import TileChoice
from luminal.shape.expression import maximum, minimum

CHAINS = 4  # maxima folded side by side: one takes some ten cycles after the other
COPIED = 8  # elements copied per step of a loop over single ones


class LanesPass(Pass):
    def __init__(self, group: Group, cascade: Cascade, blocking: Blocking) -> None:
        super().__init__(group, cascade, blocking)
        vectors = min(blocking.vectors, blocking.lane_block // blocking.width)
        self.lane_tile = TileChoice(vectors, blocking.width)

    def prepare(self, env: Env) -> None:
        """Factors of the contractions that vary along the lanes, copied lane by lane."""
        for reduction in self.cascade.inner:
            for factor in dict.fromkeys(reduction.args[0].args):
                if self.lane in factor.axes and factor not in self.values.rows:
                    self.pack_factor(factor, reduction, env)

    def pack_factor(self, factor: Term, reduction: Term, env: Env) -> None:
        """Vectors of lanes where they lie together, else single elements: gathers cost more."""
        axes = tuple(a for a in reduction.attrs if a in factor.axes)
        strip = self.row((*axes, *self.lane_axes), factor.dtype)
        order, tile = (*axes, *self.lane_axes), self.lane_tile
        if not contiguous(self.group, factor, self.lane_axes[0]):
            order, tile = (*self.lane_axes, *axes), TileChoice(COPIED)
        with self.loops(order, env, tile) as inside:
            self.write(strip, inside, self.values.evaluate(factor, inside))
        self.keep({factor: strip})

    def maximise(self, env: Env) -> None:
        """In register tiles of steps by lanes; then what is masked."""
        rows = {r: self.row((self.step, *self.lane_axes), r.dtype) for r in self.kept()}
        self.block = self.row((self.step, *self.lane_axes))
        wanted = self.x if self.free is None else self.unmasked
        lanes = self.open(self.lane_axes[0], env, self.lane_tile)
        inside = self.open(self.step, lanes, TileChoice(self.blocking.rows))
        self.pending = list(self.cascade.inner)
        while self.pending:
            self.reduce(self.next_stage(), inside)
        self.write(self.block, inside, self.values.evaluate(wanted, inside))
        for reduction, row in rows.items():
            self.write(row, inside, self.values.evaluate(reduction, inside))
        self.blocks.close()
        self.blocks.close()
        self.keep({**rows, self.x: self.block})
        self.apply_mask(env)

    def apply_mask(self, env: Env) -> None:
        """-inf at the masked positions of steps in which there are some."""
        if self.free is None:
            return
        low, high = self.free
        parts = (self.first, minimum(self.last, low)), (maximum(self.first, high), self.last)
        for start, stop in parts:
            if (stop - start).interval.at_most(0):
                continue
            lanes = self.open(self.lane_axes[0], env, self.lane_tile)
            inside = self.open(self.step, lanes, within=(start, stop))
            none = self.values.identity(MAXIMUM, self.dtype)
            seen = self.values.index(self.mask.substitute(inside.values), bool_)
            x = self.read(self.block, inside)
            self.write(self.block, inside, self.apply("Select", seen, x, none))
            self.blocks.close()
            self.blocks.close()

    def move_maximum(self, env: Env) -> None:
        with self.loops(self.lane_axes, env, self.lane_tile) as lanes:
            old = self.read(self.maximum, lanes)
            inside = self.open(self.step, lanes, TileChoice(CHAINS))
            value = self.values.evaluate(self.x, inside)
            (new,) = self.fold(MAXIMUM, [old], [(value,)])
            for rate, row in self.rescale.items():
                self.write(row, lanes, self.moved(rate, old, new))
            self.write(self.maximum, lanes, new)

    def exponentiate(self, env: Env) -> None:
        rows = self.exponential_rows(self.block, (self.step, *self.lane_axes))
        plain = [m for m in self.cascade.members if not self.extra(m.term)]
        with self.loops(self.lane_axes, env, self.lane_tile) as lanes:
            self.know(self.cascade.maximum, lanes, self.safe(self.read(self.maximum, lanes)))
            scaled = []
            for member in plain:
                factor = self.read(self.rescale[member.base, member.factor], lanes)
                scaled.append(self.apply("Mul", self.read(self.sums[member], lanes), factor))
            inside = self.open(self.step, lanes)
            tiles = [self.values.evaluate(e, inside) for e in rows]
            values = [(self.values.evaluate(m.term.args[0], inside),) for m in plain]
            for row, tile in zip(rows.values(), tiles, strict=True):
                self.write(row, inside, tile)
            totals = self.fold(SUM, scaled, values)
            for member, total in zip(plain, totals, strict=True):
                self.write(self.sums[member], lanes, total)
        self.keep(rows)

"""A cascade whose vectors hold positions of the lane axis: the maximum and sums are vertical.

What is contracted is packed lane by lane once; the other factor is read as it lies. The block of x
is (steps, lanes), the panel that the sums with further axes want.
"""

from __future__ import annotations

from luminal.algebra.terms import Term
from luminal.dtypes import bool_
from luminal.hlir.monoid import MAXIMUM, SUM
from luminal.kernel.cascade_work import Workspace, contiguous
from luminal.kernel.evaluate import Env
from luminal.kernel.schedule import TileChoice
from luminal.shape.expression import maximum, minimum


class AlongLanes:
    """The parts of a pass (`cascade_pass.Along`), its vectors along the lanes."""

    def __init__(self, work: Workspace) -> None:
        self.work = work
        blocking = work.blocking
        vectors = min(blocking.vectors, blocking.lane_block // blocking.width)
        self.lane_tile = TileChoice(vectors, blocking.width)

    def prepare(self, env: Env) -> None:
        """Factors of the contractions that vary along the lanes, copied lane by lane."""
        work = self.work
        for reduction in work.cascade.inner:
            for factor in dict.fromkeys(reduction.args[0].args):
                if work.lane in factor.axes and factor not in work.values.rows:
                    self.pack_factor(factor, reduction, env)

    def pack_factor(self, factor: Term, reduction: Term, env: Env) -> None:
        """Vectors of lanes where they lie together, else single elements: gathers cost more."""
        work = self.work
        axes = tuple(a for a in reduction.attrs if a in factor.axes)
        strip = work.row((*axes, *work.lane_axes), factor.dtype)
        order, tile = (*axes, *work.lane_axes), self.lane_tile
        if not contiguous(work.group, factor, work.lane_axes[0]):
            order, tile = (*work.lane_axes, *axes), TileChoice(work.blocking.copied)
        with work.loops(order, env, tile) as inside:
            work.write(strip, inside, work.values.evaluate(factor, inside))
        work.keep({factor: strip})

    def maximise(self, env: Env) -> None:
        """In register tiles of steps by lanes; then what is masked."""
        work = self.work
        rows = {r: work.row((work.step, *work.lane_axes), r.dtype) for r in work.kept()}
        self.block = work.row((work.step, *work.lane_axes))
        # Most steps have no masked lane: the mask is put
        # on the others afterwards, not in the tiles.
        wanted = work.x if work.free is None else work.unmasked
        lanes = work.open(work.lane_axes[0], env, self.lane_tile)
        inside = work.open(work.step, lanes, TileChoice(work.blocking.rows))
        work.stages.pending = [*work.cascade.inner]
        work.stages.run(inside)
        work.write(self.block, inside, work.values.evaluate(wanted, inside))
        for reduction, row in rows.items():
            work.write(row, inside, work.values.evaluate(reduction, inside))
        work.blocks.close()
        work.blocks.close()
        work.keep({**rows, work.x: self.block})
        self.apply_mask(env)

    def apply_mask(self, env: Env) -> None:
        """-inf at the masked positions of steps in which there are some."""
        work = self.work
        if work.free is None:
            return
        low, high = work.free
        # Where no step is free low may lie above high:
        # both parts then have some steps, masked twice.
        parts = (work.first, minimum(work.last, low)), (maximum(work.first, high), work.last)
        for start, stop in parts:
            if (stop - start).interval.at_most(0):
                continue
            lanes = work.open(work.lane_axes[0], env, self.lane_tile)
            inside = work.open(work.step, lanes, within=(start, stop))
            none = work.arithmetic.identity(MAXIMUM)
            seen = work.values.index(work.mask.substitute(inside.values), bool_)
            x = work.read(self.block, inside)
            work.write(self.block, inside, work.arithmetic.apply("Select", seen, x, none))
            work.blocks.close()
            work.blocks.close()

    def move_maximum(self, env: Env) -> None:
        work = self.work
        with work.loops(work.lane_axes, env, self.lane_tile) as lanes:
            old = work.read(work.maximum, lanes)
            inside = work.open(work.step, lanes, TileChoice(work.blocking.chains))
            value = work.values.evaluate(work.x, inside)
            (new,) = work.arithmetic.fold(MAXIMUM, [old], [(value,)])
            work.move(old, new, lanes)

    def exponentiate(self, env: Env) -> None:
        work = self.work
        rows = work.exponential_rows(self.block, (work.step, *work.lane_axes))
        plain = [m for m in work.cascade.members if not work.extra(m.term)]
        with work.loops(work.lane_axes, env, self.lane_tile) as lanes:
            work.know_maximum(lanes)
            scaled = [work.rescaled(member, lanes) for member in plain]
            inside = work.open(work.step, lanes)
            tiles = [work.values.evaluate(e, inside) for e in rows]
            values = [(work.values.evaluate(m.term.args[0], inside),) for m in plain]
            for row, tile in zip(rows.values(), tiles, strict=True):
                work.write(row, inside, tile)
            totals = work.arithmetic.fold(SUM, scaled, values)
            for member, total in zip(plain, totals, strict=True):
                work.write(work.sums[member], lanes, total)
        work.keep(rows)

"""A cascade whose vectors hold positions of the lane axis: the maximum and sums are vertical.

What is contracted is packed lane by lane once; the other factor is read as it lies. The block of x
is (steps, lanes), the panel that the sums with further axes want.
"""

from __future__ import annotations

from luminal.algebra.terms import Reduction, Term
from luminal.base.dtypes import bool_
from luminal.hlir.monoid import MAXIMUM
from luminal.kernel.cascade_sweep import Sweep
from luminal.kernel.cascade_work import Workspace, is_contiguous
from luminal.kernel.environment import Env
from luminal.kernel.schedule import Stage, TileChoice
from luminal.kernel.staged import Staged
from luminal.shape.expression import maximum, minimum


# Lanes that are rows make maxima and sums vertical: no lane of a vector ever meets another one, so
# nothing is folded. That wants many rows; few queries over a long cache have lanes along the steps
# instead (`cascade_steps.py`).
class AlongLanes:
    """The parts of a pass (`cascade_pass.Along`), its vectors along the lanes."""

    def __init__(self, work: Workspace) -> None:
        self.work = work
        tiling = work.tiling
        # A block of lanes may be narrower than a register tile, as where there are few rows.
        vectors = min(tiling.vectors, tiling.lane_block // tiling.width)
        self.lane_tile = TileChoice(vectors, tiling.width)

    def prepare(self, env: Env) -> None:
        """Factors of the contractions that vary along the lanes, copied lane by lane."""
        work = self.work
        for reduction in work.cascade.inner:
            for factor in dict.fromkeys(reduction.args[0].args):
                if work.lane in factor.axes and not work.reductions.is_packed(factor, reduction):
                    work.stage(self.packed(factor, reduction), env)

    def packed(self, factor: Term, reduction: Reduction) -> Stage:
        """A factor for all lanes of the block, once for the pass."""
        work = self.work
        axes = tuple(a for a in reduction.attrs if a in factor.axes)
        order, tile = (*axes, *work.lane_axes), self.lane_tile
        fill = work.tiled(order, tile)
        # Vectors of lanes where they lie together, else single elements: gathers cost more.
        if not is_contiguous(work.fused, factor, work.lane_axes[0]):
            fill = work.tiled((*work.lane_axes, *axes), TileChoice(work.tiling.copied))
        return Stage(factor, None, order, fill, dot=work.fused.dots.get(reduction))

    def hold(self, sweep: Sweep, env: Env) -> None:
        """Stages what the sweep needs in register tiles of steps by lanes, then masks it."""
        work = self.work
        axes = (work.step, *work.lane_axes)
        # Most steps have no masked lane: the mask of a maximum is put
        # on the others afterwards, not in the tiles.
        held: dict[Term, Term] = {}
        for greatest in sweep.maxima:
            (x,) = greatest.args
            unmasked = None if work.free is None else sweep.unmasked(greatest)
            held[x] = x if unmasked is None else unmasked
        late = [x for x, wanted in held.items() if wanted is not x]
        kept = (r for r in sweep.needed() if r in work.kept)
        held |= {t: t for t in (*sweep.factors().values(), *sweep.kept(), *kept)}
        held = {t: wanted for t, wanted in held.items() if t not in work.values.staged}
        if not held:
            return
        rows = work.block(axes, held)
        # Lanes outside and steps inside: the packed tile of lanes stays close while all steps pass
        # by it.
        lanes = work.open(work.lane_axes[0], env, self.lane_tile)
        inside = work.open(work.step, lanes, TileChoice(work.tiling.rows))
        work.reductions.pending = [r for r in sweep.needed() if r not in work.values.staged]
        work.reductions.run(inside)
        for term, wanted in held.items():
            work.write(rows[term], inside, work.values.evaluate(wanted, inside))
        work.blocks.close()
        work.blocks.close()
        work.keep(rows)
        for x in late:
            self.apply_mask(rows[x], env)

    def apply_mask(self, row: Staged, env: Env) -> None:
        """-inf at the masked positions of steps in which there are some."""
        work = self.work
        assert work.free is not None
        low, high = work.free
        # Where no step is free low may lie above high:
        # both parts then have some steps, masked twice.
        parts = (work.first, minimum(work.last, low)), (maximum(work.first, high), work.last)
        for start, stop in parts:
            if (stop - start).interval.at_most(0):
                continue
            lanes = work.open(work.lane_axes[0], env, self.lane_tile)
            inside = work.open(work.step, lanes, within=(start, stop))
            seen = work.values.index(work.mask.substitute(inside.values), bool_)
            x = work.read(row, inside)
            none = work.values.identity(MAXIMUM, x.dtype)
            work.write(row, inside, work.arithmetic.apply("Select", seen, x, none))
            work.blocks.close()
            work.blocks.close()

    def move_maximum(self, maximum: Reduction, env: Env) -> None:
        work = self.work
        with work.loops(work.lane_axes, env, self.lane_tile) as lanes:
            old = work.read(work.state[maximum], lanes)
            inside = work.open(work.step, lanes, TileChoice(work.tiling.chains))
            value = work.values.evaluate(maximum.args[0], inside)
            (new,) = work.arithmetic.fold([(MAXIMUM, old)], [(value,)])
            work.move(maximum, old, new, lanes)

    def fold(self, sweep: Sweep, env: Env) -> None:
        work = self.work
        rows = work.exponential_rows(sweep, (work.step, *work.lane_axes))
        if not rows and not sweep.narrow:
            return
        with work.loops(work.lane_axes, env, self.lane_tile) as lanes:
            for greatest in sweep.maxima:
                work.know_maximum(greatest, lanes)
            inside = work.open(work.step, lanes)
            tiles = [work.values.evaluate(e, inside) for e in rows]
            values = [(work.values.evaluate(m.term.args[0], inside),) for m in sweep.narrow]
            for row, tile in zip(rows.values(), tiles, strict=True):
                work.write(row, inside, tile)
            work.add(sweep.narrow, values, lanes)
        work.keep(rows)

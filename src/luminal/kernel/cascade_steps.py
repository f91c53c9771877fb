"""A cascade whose vectors hold steps: for few lanes, and where x lies along the steps; and by
groups, whose lanes go along steps in the place of vectors.

Contractions are dot products of rows, or run over vectors of steps where their operand lies so; the
block of x is (lanes, steps), the maximum and plain sums are folded across their vectors.
"""

from __future__ import annotations

from luminal.algebra.terms import Reduction, Term
from luminal.hlir.monoid import MAXIMUM
from luminal.kernel.cascade_sweep import Sweep
from luminal.kernel.cascade_work import Workspace, is_contiguous
from luminal.kernel.environment import Env
from luminal.kernel.lanes import ONE_LANE
from luminal.kernel.schedule import TileChoice


# Here scores are sums over lanes, so each is a fold; tiles of several rows by several steps share
# what they load, and their folds are done together (`expand/folds.py`).
class AlongSteps:
    """The parts of a pass (`cascade_pass.Along`), its vectors along the steps."""

    def __init__(self, work: Workspace) -> None:
        self.work = work
        self.lane_tile = work.tiling.row
        tiling = work.tiling
        self.vectors = TileChoice(tiling.chains, tiling.width, tiling.lanes)

    def prepare(self, env: Env) -> None:
        """Nothing: factors are read as they lie."""

    def hold(self, sweep: Sweep, env: Env) -> None:
        """The contractions, to scratch; all else is computed from them by vectors."""
        work = self.work
        axes = (*work.lane_axes, work.step)
        rows = work.block(axes, (r for r in sweep.needed() if r not in work.values.staged))
        work.reductions.pending = [r for r in sweep.needed() if r in rows]
        # A tile of steps alone has fewer sums side by side, so it takes more steps.
        size = work.tiling.dots
        most = size if work.lane_axes else 2 * size
        dot_tile = TileChoice(most, 1, work.tiling.dot_lanes or work.tiling.lanes)
        while work.reductions.pending:
            (first, *_) = siblings = work.reductions.next_siblings()
            dots = not all(self.is_along_steps(r) for r in siblings)
            tile = dot_tile if dots else self.vectors
            sequential = work.reductions.sequential
            *_, along = (x for x in sequential if x.is_reduced(first, work.reductions.along))
            # Vectors run along one axis: a dot product's own, whose parts are folded, or the steps.
            shared = work.tiling.sum_lanes if dots else ONE_LANE
            work.tiles[along.symbol] = TileChoice(1, work.tiling.width if dots else 1, shared)
            lanes = TileChoice(size, 1, work.tiling.row_lanes)
            # Steps outside: what they read, which is long, is read once for all lanes.
            outside = work.open(work.step, env, tile)
            with work.loops(work.lane_axes, outside, lanes) as inside:
                work.reductions.reduce(siblings, inside)
                for reduction in siblings:
                    value = work.values.evaluate(reduction, inside)
                    work.write(rows[reduction], inside, value)
            work.blocks.close()
            work.keep({r: rows[r] for r in siblings})

    def is_along_steps(self, reduction: Term) -> bool:
        return is_contiguous(self.work.fused, reduction, self.work.step)

    def move_maximum(self, maximum: Reduction, env: Env) -> None:
        work = self.work
        (x,) = maximum.args
        # A contraction lies in its row, which may be that of all steps.
        held = [x] if x not in work.values.staged else []
        rows = work.block((*work.lane_axes, work.step), held)
        with work.loops(work.lane_axes, env, self.lane_tile) as lanes:
            old = work.read(work.state[maximum], lanes)
            inside = work.open(work.step, lanes, self.vectors)
            value = work.values.evaluate(x, inside)
            for row in rows.values():
                work.write(row, inside, value)
            (new,) = work.arithmetic.fold([(MAXIMUM, old)], [(value,)])
            work.move(maximum, old, new, lanes)
        work.keep(rows)

    def fold(self, sweep: Sweep, env: Env) -> None:
        work = self.work
        axes = (*work.lane_axes, work.step)
        rows = work.exponential_rows(sweep, axes)
        factors = [f for f in sweep.factors().values() if f not in work.values.staged]
        rows |= {f: work.row(axes, f.dtype) for f in factors}
        if not rows and not sweep.narrow:
            return
        with work.loops(work.lane_axes, env, self.lane_tile) as lanes:
            for maximum in sweep.maxima:
                work.know_maximum(maximum, lanes)
            inside = work.open(work.step, lanes, self.vectors)
            tiles = [work.values.evaluate(e, inside) for e in rows]
            values = [(work.values.evaluate(m.term.args[0], inside),) for m in sweep.narrow]
            for row, tile in zip(rows.values(), tiles, strict=True):
                work.write(row, inside, tile)
            work.add(sweep.narrow, values, lanes)
        work.keep(rows)

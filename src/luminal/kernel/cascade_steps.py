"""A cascade whose vectors hold steps: for few lanes, and where x lies along the steps; and by
groups, whose lanes go along steps in the place of vectors.

Contractions are dot products of rows, or run over vectors of steps where their operand lies so; the
block of x is (lanes, steps), the maximum and plain sums are folded across their vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from luminal.algebra.terms import Axes, Reduction, Term
from luminal.hlir.monoid import MAXIMUM
from luminal.kernel.cascade import Cascade, lane_axis
from luminal.kernel.cascade_sweep import Sweep
from luminal.kernel.cascade_work import Workspace, is_contiguous
from luminal.kernel.environment import Env
from luminal.kernel.fused import Fused
from luminal.kernel.lanes import ONE_LANE
from luminal.kernel.schedule import SINGLE, Stage, TileChoice

STREAMS = 8  # steps that a lane copies at once: loads under way while others are waited for


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
        if work.tiling.near:
            for factor in dict.fromkeys(across_steps(work.fused, work.cascade, rows)):
                work.stage(self.copied(factor), env)
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

    # A lane that reads a row of its own touches a sector for each element, as all lanes beside it
    # do: 32 where 4 would do. Read side by side and written with a gap after each row, neither
    # memory is read or written crosswise.
    def copied(self, factor: Term) -> Stage:
        """A factor for a block of steps: rows of lanes copy steps, lanes of a row neighbours."""
        work, tiling = self.work, self.work.tiling
        axes = near_axes(work.fused, factor, work.cascade)
        inner = tuple((a, SINGLE) for a in axes[:-1])
        steps = TileChoice(STREAMS, 1, tiling.row_lanes)
        fill = ((work.step, steps), *inner, (axes[-1], TileChoice(1, 1, tiling.lanes)))
        return Stage(factor, work.step, (work.step, *axes), fill, pad=factor.dtype.size)

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


def across_steps(fused: Fused, cascade: Cascade, contractions: Iterable[Term]) -> Iterator[Term]:
    """The factors that lie across the steps, and that no position of the lanes has for itself."""
    lane, (*_, step) = lane_axis(cascade), cascade.steps
    for r in contractions:
        for factor in r.args[0].args if r.args[0].op == "Mul" else ():
            shared = step in factor.axes and lane not in factor.axes
            apart = shared and not is_contiguous(fused, factor, step)
            if apart and near_axes(fused, factor, cascade):
                yield factor


def near_axes(fused: Fused, factor: Term, cascade: Cascade) -> Axes:
    """The axes of a factor that are summed, of which neighbours along the last one lie side by
    side; none if there is no such axis.
    """
    summed = {a for r in cascade.inner for a in r.attrs} & factor.axes
    axes = sorted(summed, key=lambda a: (is_contiguous(fused, factor, a), a.sort_key))
    return tuple(axes) if axes and is_contiguous(fused, factor, axes[-1]) else ()

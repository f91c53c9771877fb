"""The stages of a kernel's schedule: which loops fill them, and how their memory is laid out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from luminal.algebra.terms import Term
from luminal.base.dots import Dot
from luminal.kernel.loops import LoopAxis
from luminal.kernel.neighbours import walked
from luminal.kernel.schedule import Schedule, Stage, TileChoice
from luminal.schedule.vectors.facts import Facts
from luminal.shape.expression import Symbol


def with_packed(
    schedule: Schedule,
    facts: Facts,
    factors: Sequence[Term],
    columns: LoopAxis,
    transposed: tuple[Symbol, int] | None,
) -> Schedule:
    """The schedule with these factors packed for each tile of the columns. `transposed`: a reduced
    axis along which they lie in memory, and how many positions of it are packed together.
    """
    stages = []
    for factor in factors:
        for dot in _dots_of(facts, factor):
            stages.append(_packed(schedule, facts, factor, dot, columns, transposed))
    return replace(schedule, stages=tuple(stages))


def with_sums(
    schedule: Schedule, facts: Facts, inner: Sequence[LoopAxis], at_once: int
) -> Schedule:
    """The schedule with all sums in scratch, of the positions of the `inner` loops of the grid:
    so many steps of the reduced axis are added to them before the next ones.
    """
    order = tuple(loop.symbol for loop in reversed(inner))
    outside = facts.sequential[-1].symbol, TileChoice(at_once)
    fill = (outside, *((loop.symbol, schedule.tile(loop)) for loop in inner))
    stages = tuple(Stage(r, None, order, fill) for r in facts.reductions)
    return replace(schedule, stages=stages)


def _packed(
    schedule: Schedule,
    facts: Facts,
    factor: Term,
    dot: Dot | None,
    columns: LoopAxis,
    transposed: tuple[Symbol, int] | None,
) -> Stage:
    """One factor, as a dot takes it."""
    along = walked(facts.fused)
    by_dot = {a for r, a in along.items() if facts.fused.dots[r] is dot}
    steps = [
        x
        for x in schedule.sequential
        if not factor.axes.isdisjoint(x.members) and (x.neighbours > 1) == (x.members[-1] in by_dot)
    ]
    tile, tiles = schedule.tile(columns), {x.symbol: schedule.tile(x) for x in steps}
    across = TileChoice(tile.unroll, tile.vector)
    if transposed is not None:
        across = TileChoice(1, tile.vector)
        if transposed[0] in tiles:
            tiles[transposed[0]] = TileChoice(transposed[1])
    # Words that a dot takes lie side by side, so the loop over them is the innermost dimension.
    order = tuple(x.symbol for x in sorted(steps, key=lambda x: x.neighbours))
    fill = ((columns.symbol, across), *tiles.items())
    if tile.vector > 1:
        return Stage(factor, columns.symbol, (*order, columns.symbol), fill, dot=dot)
    # Rows a power of two long would meet in the same sets of a cache.
    pad = facts.target.line_bytes
    return Stage(factor, columns.symbol, (columns.symbol, *order), fill, pad, dot)


def _dots_of(facts: Facts, factor: Term) -> list[Dot | None]:
    """What multiplies a factor, in the reductions that have it."""
    users = facts.fused.products_of(factor)
    return [*dict.fromkeys(facts.fused.dots.get(r) for r in users)] or [None]

"""Accumulators carried through loops, and what becomes of them where a loop ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.algebra.terms import Reduction
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.tile_ir import Carry, Map, Reduce, Tile
from luminal.shape.expression import Symbol

Carried = tuple[Tile | None, Tile, Tile]
"""The result where no loop is open, and in the innermost one the accumulator before and after."""


def close_loop(
    values: Evaluator,
    stage: Sequence[Reduction],
    carries: Sequence[Carried],
    axis: Symbol,
    *,
    inside: bool,
) -> list[Any]:
    """Ends the loop over `own`: its accumulators come from the loop around it (`inside` one), or
    start empty. Partial results along the loop's own axis start empty too, and are folded after it.
    """
    # An accumulator with the loop's own axis is one per position of a tile. Each begins empty: what
    # the loops outside have summed so far counts once, so it is added after these are folded.
    blocks = values.blocks
    level = blocks.depth - 1
    carried, outer = [], []
    for reduction, (_, inner, after) in zip(stage, carries, strict=True):
        partial = axis in inner.axes
        rest = [a for a in inner.axes if a is not axis]
        empty = values.identity(reduction.monoid, reduction.dtype)
        before = blocks.new(rest, reduction.dtype, level) if inside else None
        init = before if before is not None and not partial else empty
        result = blocks.new(inner.axes, reduction.dtype, level)
        carried.append(Carry(result, init, inner, after))
        outer.append((result, before, partial, rest))
    blocks.close(tuple(carried))
    closed: list[Any] = []
    for reduction, (result, before, partial, rest) in zip(stage, outer, strict=True):
        combine = reduction.monoid.combine
        if partial:
            folded = blocks.new(rest, reduction.dtype, level)
            blocks.put(Reduce(folded, combine, result, axis), level)
            result = folded
            if before is not None:
                after = blocks.new(rest, reduction.dtype, level)
                blocks.put(Map(after, combine, (before, result)), level)
                result = after
        closed.append((result, before, result))
    return closed

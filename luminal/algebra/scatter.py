"""Where a Scatter stores: its map in the axes of its source."""

from __future__ import annotations

from luminal.algebra.frames import linear, shape_of
from luminal.algebra.terms import Term
from luminal.shape.expression import Expression, Symbol, const
from luminal.shape.view import index


def positions(scatter: Term) -> tuple[Expression | Term, ...]:
    """Per dimension of the destination an Expression in the source's axes, or an integer term."""
    attrs = scatter.attrs
    frame = attrs.frames[1]
    where = {index(k, n): linear(frame[k]) for k, n in enumerate(shape_of(frame))}
    return tuple(
        entry.substitute(where) if isinstance(entry, Expression) else scatter.args[2 + entry]
        for entry in attrs.hlir.map
    )


def is_ordered(scatter: Term) -> bool:
    """Must the source be stored in row-major order: may two positions meet in one destination?"""
    entries = positions(scatter)
    axes = {axis for dimension in scatter.attrs.frames[1] for axis in dimension}
    for entry in entries:
        if isinstance(entry, Term):
            return True
        own = [s for s in entry.symbols() if s.extent is not None]
        if _is_digits(entry - entry.constant, own):
            axes -= set(own)
    return bool(axes) or scatter.attrs.hlir.mode == "add"


def _is_digits(entry: Expression, own: list[Symbol]) -> bool:
    """Does the entry tell apart all positions of its axes: a mixed-radix number plus an offset?"""
    left = {s: entry.coefficient(s) for s in own}
    radix = const(1)
    if len(own) == 1:
        stride = left[own[0]]
        return stride is not None and stride.is_const and stride.value != 0
    while left:
        found = next(
            (s for s, stride in left.items() if stride is not None and stride == radix), None
        )
        if found is None or found.extent is None:
            return False
        del left[found]
        radix = radix * found.extent
    return True

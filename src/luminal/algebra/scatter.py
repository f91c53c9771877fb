"""Where a Scatter stores, and along which axes of its source two positions may meet.

The map of a Scatter gives a coordinate per dimension of the destination. Positions that meet at one
element agree in every coordinate, so they agree along each axis that can be read back from the
coordinates: such an axis is *free*. Loops over free axes may run in any order, by any worker and in
any lane; only the others are walked in row-major order. A coordinate that is an integer term (rows
chosen by an index tensor) tells nothing of its axes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from luminal.algebra.frames import linear, shape_of
from luminal.algebra.terms import Axes, Index, Literal, Term
from luminal.base.dtypes import int64
from luminal.shape.expression import Expression, Symbol, const
from luminal.shape.prove import prove
from luminal.shape.view import index


def positions(scatter: Term) -> tuple[Expression | Term, ...]:
    """The position of each dimension of the destination: an Expression in the source's axes, or an
    integer term.
    """
    attrs = scatter.attrs
    frame = attrs.frames[1]
    where = {index(k, n): linear(frame[k]) for k, n in enumerate(shape_of(frame))}
    return tuple(
        entry.substitute(where)
        if isinstance(entry, Expression)
        else _coordinate(scatter.args[2 + entry])
        for entry in attrs.hlir.map
    )


def _coordinate(term: Term) -> Expression | Term:
    """An index tensor that only counts is as good as an Expression."""
    return term.attrs if isinstance(term, Index) and term.dtype is int64 else term


# Positions that meet at one element agree in every coordinate, so along each axis that can be read
# back from coordinates. Such axes are free and may run in parallel. The others are walked in
# row-major order by one thread, so elements meet in the reference's order whatever the threads do.
def ordered_axes(scatter: Term) -> Axes:
    """The axes of the source that are not free, outermost first.

    By induction over the coordinates: one that is an Expression in axes known to agree and an
    injective affine part in others makes those others agree too.
    """
    axes = [axis for dimension in scatter.attrs.frames[1] for axis in dimension]
    coordinates = positions(scatter)
    entries = [entry for entry in coordinates if isinstance(entry, Expression)]
    terms = [entry for entry in coordinates if isinstance(entry, Term)]
    free = {owner for entry in terms if (owner := owner_of(entry)) is not None}
    while True:
        told = [read_back(entry, free, axes) for entry in entries]
        more = free.union(*told)
        if more == free:
            return tuple(axis for axis in axes if axis not in free)
        free = more


def owner_of(coordinate: Term) -> Symbol | None:
    """The axis that says which coordinates count: `Select(f(x) == axis, x, -1)`. Positions that
    meet agree in x, so in f(x) as well, and in the axis.
    """
    if coordinate.op != "Select" or coordinate.args[0].op != "Equal":
        return None
    _, x, other = coordinate.args
    if not isinstance(other, Literal) or other.value >= 0:
        return None
    pair = coordinate.args[0].args
    for computed, owner in (pair, pair[::-1]):
        is_of_x = all(a is x or isinstance(a, Literal) for a in computed.args)
        axis = owner.attrs if isinstance(owner, Index) else None
        if x in computed.args and is_of_x and isinstance(axis, Symbol) and axis not in x.axes:
            return axis
    return None


def read_back(entry: Expression, told: Collection[Symbol], axes: Sequence[Symbol]) -> set[Symbol]:
    """The axes that a coordinate tells, where those in `told` are told already.

    Affine in these, each stride must exceed all that the smaller ones reach together.
    """
    # A number in mixed radix: where each digit counts for more than all smaller ones together,
    # equal numbers have equal digits.
    untold = [axis for axis in reversed(axes) if axis in entry.symbols() and axis not in told]
    strides: dict[Symbol, Expression] = {}
    rest = entry
    for axis in untold:
        stride = entry.coefficient(axis)
        if stride is None or any(symbol.extent is not None for symbol in stride.symbols()):
            return set()
        rest = rest - axis * stride
        strides[axis] = stride if prove(stride >= 1) else -stride
    if not rest.symbols().isdisjoint(untold):
        return set()
    reach = const(0)
    for axis in sorted(untold, key=lambda axis: strides[axis].interval.lo or 0):
        if prove(strides[axis] > reach) is not True:
            return set()
        assert axis.extent is not None
        reach = reach + strides[axis] * (axis.extent - 1)
    return set(untold)

"""Frames: the axes of each dimension of a tensor, and positions along them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from luminal.algebra.terms import Axes, Frame
from luminal.shape.expression import ONE, Expression, Symbol, const

UNBOUNDED = 1 << 31  # positions taken of an extent that nothing bounds: one more than a dim has


def extent_of(dimension: Axes) -> Expression:
    """The extent of a dimension made of these axes."""
    total = ONE
    for axis in dimension:
        assert axis.extent is not None
        total = axis.extent if total is ONE else total * axis.extent
    return total


def shape_of(frame: Frame) -> tuple[Expression, ...]:
    """The shape of a tensor with these axes."""
    return tuple(map(extent_of, frame))


def linear(dimension: Axes) -> Expression:
    """The index of a dimension as a sum over its axes."""
    total, stride = const(0), const(1)
    for axis in reversed(dimension):
        total = total + axis * stride
        assert axis.extent is not None
        stride = stride * axis.extent
    return total


def spread(position: Expression, dimension: Axes) -> dict[Symbol, Expression]:
    """The digits of `position` in the mixed radix of `dimension`; the outermost is not wrapped."""
    out: dict[Symbol, Expression] = {}
    stride = const(1)
    for place, axis in reversed([*enumerate(dimension)]):
        assert axis.extent is not None
        # Within the dimension the outermost digit stays below its extent without a remainder.
        digit = position // stride
        out[axis] = digit % axis.extent if place else digit
        stride = stride * axis.extent
    return out


def spread_frame(frame: Frame, position: Sequence[Expression]) -> dict[Symbol, Expression]:
    """The axes of a frame at a position: the digits in each of its dimensions."""
    out: dict[Symbol, Expression] = {}
    for dimension, index in zip(frame, position, strict=True):
        out.update(spread(index, dimension))
    return out


def most(extent: Expression) -> int:
    """The largest number of positions, at least 1; UNBOUNDED where dims leave it open."""
    hi = extent.interval.hi
    return UNBOUNDED if hi is None else max(1, hi)


def upper(axes: Iterable[Symbol]) -> int:
    """The largest number of points of a set of axes."""
    points = 1
    for axis in axes:
        assert axis.extent is not None
        points *= most(axis.extent)
    return points


def is_never_empty(axis: Symbol) -> bool:
    """Is the extent at least 1, whatever the dims are?"""
    lo = None if axis.extent is None else axis.extent.interval.lo
    return lo is not None and lo >= 1

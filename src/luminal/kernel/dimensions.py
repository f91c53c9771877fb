"""How the dimensions of a staged value lie in its buffer."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.records import dataclass
from luminal.shape.expression import ZERO, Expression, const

ALL_BANKS = 128  # bytes of shared memory, a word in each bank


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a staged value: room for `extent` positions, of which `digit` says which.

    Along an axis of which a dot multiplies `count` neighbours together these lie side by side,
    behind all other dimensions: `digit` counts words then, and `within` is the place in one.
    """

    digit: Expression
    extent: Expression
    count: int = 1
    within: Expression = ZERO


def row_major(dimensions: Sequence[Dimension], pad: int) -> tuple[Expression, Expression]:
    """The position in a buffer of these dimensions, the last one innermost, and its size."""
    position: Expression = sum((d.within for d in dimensions if d.count > 1), start=ZERO)
    stride: Expression = const(1)
    for dimension in dimensions:
        if dimension.count > 1:
            stride = const(dimension.count)
    # Padding stands where the outermost dimension steps to its next position: rows a power of two
    # long would meet in the same sets of a cache, or in one bank of shared memory.
    for number, dimension in reversed([*enumerate(dimensions)]):
        position = position + dimension.digit * stride
        stride = stride * dimension.extent
        if number == 1:
            stride = stride + pad
    return position, stride


def along(
    place: Expression, line: Expression, extent: Expression, piece: int, size: int, *,
    back: bool = False,
) -> Expression:  # fmt: skip
    """Where a place of a line of so many, of `size` bytes each, lies when pieces move along: one
    further in each line, or in each part of all banks that several lines have; or `back` again.
    """
    pieces = extent // piece
    shift = line // max(1, ALL_BANKS // (extent.value * size))
    if back:
        shift = shift * (pieces - 1)
    return (place // piece + shift) % pieces * piece + place % piece


def in_lines(outer: Dimension, inner: Dimension, width: int) -> Sequence[Dimension]:
    """Two dimensions in tiles of lines of so many elements of the inner one."""
    if inner.extent is const(width):
        return outer, inner
    tiles = Dimension(inner.digit // width, inner.extent // width)
    return tiles, outer, Dimension(inner.digit % width, const(width))

"""The boxes in which factors of products come into shared memory, where a device can be told of
them: what lies there as it is multiplied, at places that grow evenly along each axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from luminal.algebra.frames import extent_of
from luminal.algebra.terms import Axes, Term
from luminal.base.records import dataclass
from luminal.kernel.boxes import Box, Tensor
from luminal.kernel.environment import Env
from luminal.kernel.loops import LoopAxis
from luminal.kernel.product_sides import Sides
from luminal.kernel.product_tiling import DEPTH, PLACE, ProductTiling
from luminal.kernel.staged import Staged
from luminal.shape.expression import Expression, Symbol, const, opaque


@dataclass(frozen=True, slots=True)
class Cut:
    """A factor as boxes are cut out of it: `axes` are those of its dimensions, of which DEPTH and
    PLACE stand for positions along the sum and along the rows, or columns. A block is `tiles`, each
    of so many `parts`.
    """

    tensor: Tensor
    axes: tuple[Symbol, ...]
    tiles: int
    parts: int

    def boxes(
        self, source: str, room: Staged, turn: Expression, at: Mapping[Symbol, Expression]
    ) -> list[Box]:
        """The boxes of a block that begins at a position of each axis, and goes to one of a room's
        buffers.
        """
        tensor, line, zero = replace(self.tensor, source=source), self.axes[0], const(0)
        boxes = []
        for number in range(self.tiles):
            start = const(number * tensor.box[0])
            here = {DEPTH: zero, PLACE: zero, line: start}
            origin = tuple(at[axis] + (start if axis is line else 0) for axis in self.axes)
            offset = room.offset(Env(here), turn)
            boxes.append(Box(room.buffer, offset, tensor, origin, self.parts))
        return boxes


def cut(sides: Sides, tiling: ProductTiling, side: int, factor: Term) -> Cut | None:
    """How a device is told of a factor's blocks; None where it cannot be."""
    term, width = tiling.source(sides, factor), tiling.swizzle(side)
    if term is None or not width or not tiling.copies_whole(sides, side, factor):
        return None
    mine = sides.columns if side else sides.rows
    places = {DEPTH: joined(sides.summed), PLACE: joined(mine)}
    extents = {symbol: extent_of(axes) for symbol, axes in places.items()}
    if not all(extent.is_const for extent in extents.values()):
        return None
    at = {symbol: opaque(symbol.name, 0, extent.constant - 1) for symbol, extent in extents.items()}
    env: dict[Symbol, Expression] = {}
    for symbol, axes in places.items():
        env |= positions(axes, at[symbol])
    others = {a: a for loop in sides.batch for a in loop.members}
    offset = sides.fused.reads[term].offset({**others, **env})
    extents |= {a: a.extent for a in others if a in offset.symbols() and a.extent is not None}
    steps = {axis: offset.coefficient(at.get(axis, axis)) for axis in extents}
    rest = offset.substitute({at.get(axis, axis): const(0) for axis in extents})
    even = [step is not None and step.is_const and step.constant > 0 for step in steps.values()]
    if rest != const(0) or not all(even) or not all(e.is_const for e in extents.values()):
        return None
    line, across = (DEPTH, PLACE) if tiling.is_along_sum(side) else (PLACE, DEPTH)
    axes = (line, across, *(axis for axis in extents if axis not in places))
    size = term.dtype.size
    lengths = {DEPTH: tiling.deep, PLACE: tiling.across(side)}
    parts = tiling.cluster if side else 1  # the groups of a cluster have the same columns
    tensor = Tensor(
        "", size, tuple(extents[axis].constant for axis in axes),
        tuple(steps[axis].constant for axis in axes),  # type: ignore[union-attr]
        (width // size, lengths[across] // parts, *[1] * (len(axes) - 2)), width,
    )  # fmt: skip
    tiles = lengths[line] * size // width
    return Cut(tensor, axes, tiles, parts) if tensor.refusal is None else None


def joined(loops: tuple[LoopAxis, ...]) -> Axes:
    """The axes of loops that are walked as one."""
    return tuple(a for loop in loops for a in loop.members)


def positions(axes: Axes, position: Expression) -> dict[Symbol, Expression]:
    """Axes walked as one, at a position."""
    return LoopAxis(axes[0], axes).positions(position) if axes else {}

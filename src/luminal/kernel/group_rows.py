"""Rows that a group takes whole, its lanes the positions: what scans and sorts have in common."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from luminal.algebra.frames import shape_of
from luminal.algebra.terms import Term
from luminal.base.dtypes import DType, bool_
from luminal.kernel.evaluate import Evaluator
from luminal.kernel.fused import Fused
from luminal.kernel.lanes import Lanes
from luminal.kernel.schedule import TileChoice
from luminal.kernel.tile_ir import Load, Store, Tile
from luminal.shape.expression import TRUE, Expression, Symbol, ceil_div, const


class GroupRow:
    """One chunk: a row, by all lanes of a group.

    `together`: of a dimension that is not the row's, so many positions are one chunk.
    """

    def __init__(
        self, fused: Fused, lanes: int, together: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        self.fused = fused
        self.values = Evaluator(fused)
        self.blocks = self.values.blocks
        self.lanes = lanes
        self.tile = TileChoice(1, 1, Lanes(lanes))
        self.term: Term = fused.stores[0].term
        self.dtype = self.term.dtype
        self.axis: int = self.term.attrs.hlir.axis
        self.shape = shape_of(self.term.attrs.result)
        self.extent = self.values.canonical(self.shape[self.axis])
        self.at = [
            const(0)
            if k == self.axis
            else self.values.grid_axis(ceil_div(extent, together.get(k, 1)))
            for k, extent in enumerate(self.shape)
        ]

    def apply(self, op: str, *args: Tile) -> Tile:
        dtype = bool_ if op in ("LessThan", "Equal") else args[-1].dtype
        return self.values.map(op, args, dtype)

    def holds(self, condition: Expression) -> Tile:
        return self.values.index(condition, bool_)

    def where(self, condition: Expression, value: Tile, otherwise: Tile) -> Tile:
        if condition is TRUE:
            return value
        return self.apply("Select", self.holds(condition), value, otherwise)

    def load(self, buffer: str, offset: Expression, dtype: DType, guard: Expression = TRUE) -> Tile:
        """An element, loaded in the innermost loop."""
        level = self.blocks.depth
        tile = self.blocks.new(offset.symbols() | guard.symbols(), dtype, level)
        self.blocks.put(Load(tile, buffer, offset, guard), level)
        return tile

    def store(self, buffer: str, offset: Expression, value: Tile, guard: Expression = TRUE) -> None:
        """Stores an element in the innermost loop."""
        indices = self.values.indices(offset.symbols() | guard.symbols())
        self.blocks.put(Store(buffer, offset, value, guard, indices), self.blocks.depth)

    def with_(self, position: Expression) -> list[Expression]:
        """The index of a position of the row."""
        return [position if k == self.axis else at for k, at in enumerate(self.at)]

    def over(self, extent: Expression) -> Symbol:
        """Opens a loop by lanes."""
        axis = self.blocks.fresh_axis(extent)
        self.blocks.open(axis, const(0), extent, self.tile)
        return axis

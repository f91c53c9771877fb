"""Rows of keys that a group orders: arithmetic of keys and places."""

from __future__ import annotations

from luminal.base.dtypes import DType, bool_, int64
from luminal.kernel.group_rows import GroupRow
from luminal.kernel.tile_ir import Tile


class KeyRow(GroupRow):
    """What sorts and merges have in common."""

    def number(self, value: int) -> Tile:
        return self.values.constant(value, int64)

    def cast(self, tile: Tile, dtype: DType) -> Tile:
        return tile if tile.dtype is dtype else self.values.map("Cast", (tile,), dtype)

    def sum(self, first: Tile, *others: Tile) -> Tile:
        for other in others:
            first = self.apply("Add", first, other)
        return first

    def choose(self, condition: Tile, value: Tile, otherwise: Tile) -> Tile:
        return self.apply("Select", condition, value, otherwise)

    @property
    def no(self) -> Tile:
        return self.values.constant(False, bool_)

    @property
    def yes(self) -> Tile:
        return self.values.constant(True, bool_)

    def less(self, a: Tile, b: Tile, *, negated: bool = False) -> Tile:
        """Does one key come before another? NaN is the greatest."""
        is_less = self.apply("LessThan", a, b)
        if a.dtype.is_float:
            # The comparison is false wherever a NaN takes part; every number shall come before one.
            not_nan = self.apply("Equal", a, a)
            is_less = self.choose(self.apply("Equal", b, b), is_less, not_nan)
        return self.choose(is_less, self.no, self.yes) if negated else is_less

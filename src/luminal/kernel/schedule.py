"""Schedules: how one kernel's loops are tiled, vectorised, packed and cut into chunks.

A schedule is a record of named choices; a backend makes it, placement follows it.
"""

from __future__ import annotations

from collections.abc import Mapping

from luminal.algebra.terms import Term
from luminal.base.records import dataclass
from luminal.kernel.lanes import ONE_LANE, Lanes
from luminal.kernel.loops import LoopAxis
from luminal.shape.expression import Symbol


@dataclass(frozen=True, slots=True)
class TileChoice:
    """How one loop axis is walked inside a kernel."""

    unroll: int = 1
    vector: int = 1
    lanes: Lanes = ONE_LANE
    neighbours: int = 1

    @property
    def size(self) -> int:
        return self.unroll * self.lanes.count * self.vector * self.neighbours


SINGLE = TileChoice()


@dataclass(frozen=True, slots=True)
class Schedule:
    """The choices for one kernel.

    `grid`: the loop axes outside every reduction, outermost first, each with its positions per grid
    chunk (0: not cut). `sequential`: the axes of reductions, outermost first; `inner`: the axes of
    stores inside the grid, outermost first. `tiles` holds the tiles other than 1. `packs`: terms
    copied once per tile of the axis `packed_along` into a strip that the reduction then reads;
    where they depend on `rows` by the `keys`, once per run of rows of the same keys. `shared`:
    factors that are read where they lie, for such a run once. `lines`: the reduced axis along which
    packed factors lie in memory, if not along the columns, and how many positions of it are packed
    together. `padding`: bytes after each row that is packed whole. `by_rows`: so many steps of the
    reduced axis are added up along the whole innermost axis of the grid, with sums in scratch, then
    the next ones (0: every tile of that axis runs all steps, with sums in registers); `rows`, where
    there are any, are the innermost then, all in one tile.
    """

    axes: tuple[LoopAxis, ...]
    grid: tuple[tuple[LoopAxis, int], ...]
    sequential: tuple[LoopAxis, ...]
    inner: tuple[LoopAxis, ...]
    tiles: Mapping[Symbol, TileChoice]
    packs: tuple[Term, ...] = ()
    packed_along: Symbol | None = None
    rows: Symbol | None = None
    keys: tuple[Term, ...] = ()
    shared: tuple[Term, ...] = ()
    lines: tuple[Symbol, int] | None = None
    padding: int = 0
    by_rows: int = 0

    @property
    def by_groups(self) -> bool:
        """Is a chunk run by the lanes of a group?"""
        return any(tile.lanes.count > 1 for tile in self.tiles.values())

    def tile(self, loop: LoopAxis) -> TileChoice:
        return self.tiles.get(loop.symbol, SINGLE)

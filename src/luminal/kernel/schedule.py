"""Schedules: how one kernel's loops are tiled, vectorised, cut into chunks, and what they stage.

A schedule is a record of named choices; a backend makes it, placement follows it.
"""

from __future__ import annotations

from collections.abc import Mapping

from luminal.algebra.terms import Term
from luminal.base.dots import Dot
from luminal.base.records import dataclass
from luminal.kernel.lanes import ONE_LANE, Lanes, Part
from luminal.kernel.loops import LoopAxis
from luminal.kernel.tile_ir import Space
from luminal.shape.expression import Symbol


@dataclass(frozen=True, slots=True)
class TileChoice:
    """The tiling of one loop axis: a step takes `unroll` times a vector, or one run of each of the
    `lanes`, or all of the `neighbours`, or of a `part`.
    """

    unroll: int = 1
    vector: int = 1
    lanes: Lanes = ONE_LANE
    neighbours: int = 1
    part: Part | None = None

    @property
    def size(self) -> int:
        """Positions that one step of the loop takes."""
        extent = 1 if self.part is None else self.part.extent
        return self.unroll * self.lanes.size * self.vector * self.neighbours * extent


SINGLE = TileChoice()


@dataclass(frozen=True, slots=True)
class Stage:
    """A value that is written once to memory nearer to where it is read again and again.

    `term` is the value, by a dot what that multiplies. It is staged anew for each tile of the loop
    `at`, or once for the chunk (None). `order`: the dimensions of the buffer, outermost first, with
    `pad` bytes after each position of the outermost one; the words that a dot takes are innermost.
    `fill`: the loops that write it, outermost first, each with its tile. Where these two orders
    differ and the innermost loop has a tile, values are transposed in registers on their way
    (transposed packing). There
    are so many `buffers` in this `space`, filled in turns. In lines of `swizzle` bytes of the
    innermost dimension pieces change places; or, of that dimension as it is, pieces of `piece`
    elements move along by the number of the line.
    """

    term: Term
    at: Symbol | None
    order: tuple[Symbol, ...]
    fill: tuple[tuple[Symbol, TileChoice], ...]
    pad: int = 0
    dot: Dot | None = None
    space: Space = Space.SCRATCH
    buffers: int = 1
    swizzle: int = 0
    piece: int = 0


@dataclass(frozen=True, slots=True)
class RowRuns:
    """The axis of rows is walked run by run: rows that follow each other and agree in all `keys`.

    What depends on the rows by the keys alone is staged once for a run; the `shared` factors, which
    are read where they lie, are loaded for its first row only.
    """

    rows: Symbol
    keys: tuple[Term, ...]
    shared: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class Schedule:
    """The choices for one kernel.

    `grid`: the loop axes outside every reduction, outermost first, each with its positions per grid
    chunk (0: not cut). `sequential`: the axes of reductions, outermost first; `inner`: the axes of
    stores inside the grid, outermost first. `tiles` holds the tiles other than 1. `split`: the axis
    of the grid that is walked by two loops, over its tiles and inside of a tile.

    `stages` at the `split` axis are factors, packed for each of its tiles. Stages of sums are there
    where the reduced axis is walked outside of the innermost axes of the grid, some steps at a time
    as `fill` says: then the sums of all these positions are in scratch, not those of a tile in
    registers.
    """

    axes: tuple[LoopAxis, ...]
    grid: tuple[tuple[LoopAxis, int], ...]
    sequential: tuple[LoopAxis, ...]
    inner: tuple[LoopAxis, ...]
    tiles: Mapping[Symbol, TileChoice]
    split: Symbol | None = None
    stages: tuple[Stage, ...] = ()
    runs: RowRuns | None = None

    @property
    def is_by_groups(self) -> bool:
        """Is a chunk run by the lanes of a group?"""
        return any(tile.lanes.count > 1 for tile in self.tiles.values())

    @property
    def packed(self) -> tuple[Stage, ...]:
        """The factors that are packed."""
        return tuple(stage for stage in self.stages if stage.at is not None)

    @property
    def sums(self) -> tuple[Stage, ...]:
        """The sums in scratch."""
        return tuple(stage for stage in self.stages if stage.at is None)

    def tile(self, loop: LoopAxis) -> TileChoice:
        """The tile of an axis."""
        return self.tiles.get(loop.symbol, SINGLE)

"""The choices of scans and sorts run by groups."""

from __future__ import annotations

from luminal.algebra.frames import extent_of, shape_of
from luminal.algebra.sorts import MergedRuns, SortedBlocks
from luminal.base.records import dataclass
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused
from luminal.kernel.group_merge import place_merge
from luminal.kernel.group_scan import Deal, place_group_scan
from luminal.kernel.group_sort import place_group_sort
from luminal.kernel.knobs import Choices
from luminal.kernel.lanes import Lanes
from luminal.kernel.loops import estimate
from luminal.kernel.rows import place_scan
from luminal.kernel.schedule import TileChoice
from luminal.shape.expression import Expression

CHUNK = 1  # elements: a row for each worker or lane, of which there are many
RUN = 4  # positions of a lane at a time: that many are scanned for each meeting of all lanes
LONG = 64  # keys of each lane: of rows as long a device has few, so a group may be large
MERGED = 8  # neighbours of a merge's result for each lane, whose search then costs a key little
SECTOR = 32  # bytes of memory that are read together
BUSY = 1024  # lanes of a unit that hide what one waits for: a row for each, and none needs others


@dataclass(frozen=True, slots=True)
class ScanChoice:
    """Rows are dealt to groups, `run` positions a lane; 0: a row for each lane."""

    deal: Deal
    run: int

    def place(self, fused: Fused) -> Placed:
        """The kernel of a scan under this choice."""
        if self.run:
            return place_group_scan(fused, self.deal, self.run)
        return place_scan(fused, TileChoice(1, 1, Lanes(self.deal.lanes)), CHUNK)


@dataclass(frozen=True, slots=True)
class SortChoice:
    """A row, or a block of one, for each group; of a merge `run` neighbours for each lane."""

    lanes: int
    run: int = 0

    def place(self, fused: Fused) -> Placed:
        """The kernel of a sort or a merge under this choice."""
        if self.run:
            return place_merge(fused, self.lanes, self.run)
        return place_group_sort(fused, self.lanes)


def is_along_rows(fused: Fused) -> bool:
    """Do the positions of a scan's row lie side by side?"""
    attrs = fused.stores[0].term.attrs
    return bool(attrs.hlir.axis == len(attrs.result) - 1)


def scan(fused: Fused, choices: Choices, lanes: int, units: int | None) -> ScanChoice:
    """The choice of a scan by groups of so many lanes. `units`: of the device, where groups may
    meet often; None: only along rows, if then.
    """
    if units is None:
        rule = RUN if is_along_rows(fused) and _row(fused) >= lanes else 0
        dealt = Deal(lanes)
    else:
        dealt = deal(fused, lanes)
        rule = 0 if _rows_fill(fused, units) else RUN
    return ScanChoice(dealt, choices.pick("run", rule, (RUN, 1, 2 * RUN, 0)))


def deal(fused: Fused, lanes: int) -> Deal:
    """How so many lanes share rows: a sector of columns beside each other, as many lanes of a row
    as it has work for, and more rows if lanes are left.
    """
    shape, along = _shape(fused)
    outer = max((k for k in range(along) if _length(shape[k]) > 1), default=0)
    inner = max((k for k in range(along + 1, len(shape)) if _length(shape[k]) > 1), default=0)
    size = fused.stores[0].term.dtype.size
    columns = _power(_length(shape[inner])) if inner else 1
    columns = min(columns, SECTOR // size, lanes)
    positions = min(lanes // columns, _power(-(-_length(shape[along]) // RUN)))
    rows = min(lanes // columns // positions, _power(_length(shape[outer])) if outer < along else 1)
    if inner:
        wide = min(lanes // positions // rows, _power(_length(shape[inner])))
        columns = max(columns, wide)
    return Deal(lanes // rows // columns, rows, columns, outer, inner)


def _rows_fill(fused: Fused, units: int) -> bool:
    """Are there rows side by side for all lanes of all units, each with its own?"""
    shape, along = _shape(fused)
    beside, rows = 1, 1
    for k, extent in enumerate(shape):
        rows *= _length(extent) if k != along else 1
        beside *= _length(extent) if k > along else 1
    return beside >= SECTOR and rows >= BUSY * units


def sort(fused: Fused, choices: Choices, lanes: int) -> SortChoice:
    """The choice of a sort, or a merge, by groups of so many lanes."""
    if not isinstance(_attributes(fused), MergedRuns):
        return SortChoice(lanes)
    return SortChoice(lanes, choices.pick("run", MERGED, (MERGED, 2 * MERGED, MERGED // 2, 1)))


def is_in_blocks(fused: Fused) -> bool:
    """Is it a sort of blocks, or a merge, which groups are for?"""
    return isinstance(_attributes(fused), SortedBlocks | MergedRuns)


def is_long(fused: Fused, lanes: int) -> bool:
    """Has a row work for so many lanes?"""
    return _row(fused) >= LONG * lanes


def _shape(fused: Fused) -> tuple[tuple[Expression, ...], int]:
    """The shape of a scan or a sort, and the dimension of its rows."""
    attrs = fused.stores[0].term.attrs
    return shape_of(attrs.result), attrs.hlir.axis


def _row(fused: Fused) -> int:
    """A guess of how many positions a row has."""
    attrs = fused.stores[0].term.attrs
    return estimate(extent_of(attrs.result[attrs.hlir.axis]))


def _attributes(fused: Fused) -> object:
    return fused.stores[0].term.attrs.hlir


def _length(extent: Expression) -> int:
    return max(1, estimate(extent))


def _power(length: int) -> int:
    """The least power of two that is no less."""
    return 1 << (length - 1).bit_length()

"""The choices of scans and sorts run by groups."""

from __future__ import annotations

from luminal.algebra.frames import extent_of
from luminal.base.records import dataclass
from luminal.kernel.evaluate import Placed
from luminal.kernel.fused import Fused
from luminal.kernel.group_scan import place_group_scan
from luminal.kernel.group_sort import place_group_sort
from luminal.kernel.knobs import Choices
from luminal.kernel.lanes import Lanes
from luminal.kernel.loops import estimate
from luminal.kernel.rows import place_scan
from luminal.kernel.schedule import TileChoice

CHUNK = 1  # elements: a row for each worker or lane, of which there are many
RUN = 4  # positions of a lane at a time: that many are scanned for each meeting of all lanes
LONG = 64  # keys of each lane: of rows as long a device has few, so a group may be large


@dataclass(frozen=True, slots=True)
class ScanChoice:
    """A row for each group, `run` positions a lane; 0: a row for each lane."""

    lanes: int
    run: int

    def place(self, fused: Fused) -> Placed:
        """The kernel of a scan under this choice."""
        if self.run:
            return place_group_scan(fused, self.lanes, self.run)
        return place_scan(fused, TileChoice(1, 1, Lanes(self.lanes)), CHUNK)


@dataclass(frozen=True, slots=True)
class SortChoice:
    """A row for each group."""

    lanes: int

    def place(self, fused: Fused) -> Placed:
        """The kernel of a sort under this choice."""
        return place_group_sort(fused, self.lanes)


def is_along_rows(fused: Fused) -> bool:
    """Do the positions of a scan's row lie side by side?"""
    attrs = fused.stores[0].term.attrs
    return bool(attrs.hlir.axis == len(attrs.result) - 1)


def scan(fused: Fused, choices: Choices, lanes: int) -> ScanChoice:
    """The choice of a scan by groups of so many lanes."""
    rule = RUN if is_along_rows(fused) and _row(fused) >= lanes else 0
    return ScanChoice(lanes, choices.pick("run", rule, (RUN, 1, 2 * RUN, 0)))


def is_long(fused: Fused, lanes: int) -> bool:
    """Has a row work for so many lanes?"""
    return _row(fused) >= LONG * lanes


def _row(fused: Fused) -> int:
    """A guess of how many positions a row has."""
    attrs = fused.stores[0].term.attrs
    return estimate(extent_of(attrs.result[attrs.hlir.axis]))

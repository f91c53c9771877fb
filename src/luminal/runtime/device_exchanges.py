"""The collectives of a launch list, with their places: what a run queues, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from luminal.base.dtypes import uint8
from luminal.program.launch_list import CollectiveLaunch
from luminal.runtime.bound_operand import BoundOperand, Table
from luminal.runtime.collectives.communicator import Communicator, Moved
from luminal.runtime.collectives.tickets import Kind, Label, Monoid
from luminal.runtime.driver import DevicePointer, Driver
from luminal.runtime.exchange import Exchange, Signal


class BoundExchange(NamedTuple):
    """A CollectiveLaunch with its numbers; `site` is its position among the list's launches."""

    site: int
    launch: CollectiveLaunch
    operands: tuple[BoundOperand, ...]
    sizes: tuple[int, ...]


class Started(NamedTuple):
    """A collective that a run starts: its mesh axis, and what errors call it."""

    axis: str
    title: str


class Exchanges:
    """Makes the collectives of one list of calls; `started` are those it starts, in order."""

    def __init__(self, driver: Driver, communicators: Mapping[str, Communicator]) -> None:
        self.driver, self._communicators = driver, communicators
        self._signals: dict[int, Signal] = {}
        self.started: list[Started] = []

    def made(self, bound: BoundExchange, table: Table, trips: Sequence[int]) -> Exchange:
        """One of them in these trips of the Loops around it."""
        launch, attrs = bound.launch, bound.launch.attrs
        title = Label(launch.label or attrs.kind).of(attrs.kind, attrs.axis)
        if launch.phase != "wait":
            self.started.append(Started(attrs.axis, title))
        places = [operand.at(table, trips) for operand in bound.operands]
        # Only sums and maxima are more than bytes.
        dtype = launch.dtype if attrs.reduction else uint8
        unit = launch.dtype.size // dtype.size
        half = launch.members
        source, count = self._side_by_side(places[:half], bound.sizes[half - 1] * unit, dtype.size)
        target, taken = self._side_by_side(places[half:], bound.sizes[-1] * unit, dtype.size)
        kind, by = cast(Kind, attrs.kind), cast(Monoid, attrs.reduction.lower() or "sum")
        moved = Moved(kind, source, target, count, dtype, by, attrs.pairs)
        is_whole = launch.phase == "both"
        signal = Signal() if is_whole else self._signals.setdefault(launch.ticket, Signal())
        return Exchange(
            title, attrs.axis, len(self.started), launch.phase, moved,
            (count * dtype.size, taken * dtype.size), signal, self._communicators.get(attrs.axis),
        )  # fmt: skip

    def _side_by_side(
        self, places: Sequence[DevicePointer], last: int, size: int
    ) -> tuple[int, int]:
        """Where the members of a bucket begin, and the elements from there to the end of the last
        one, which has `last`.
        """
        first, end = (self.driver.address(place) for place in (places[0], places[-1]))
        return first, (end - first) // size + last

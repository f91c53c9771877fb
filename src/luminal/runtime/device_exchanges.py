"""The collectives of a launch list, with their places: what a run queues, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from luminal.base.dtypes import uint8
from luminal.program.launch_list import CollectiveLaunch
from luminal.runtime.bound_operand import BoundOperand, Table
from luminal.runtime.by_host import ByHost, HostExchange
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

    def __init__(
        self, driver: Driver, communicators: Mapping[str, Communicator] | Mapping[str, ByHost]
    ) -> None:
        self.driver, self._communicators = driver, communicators
        self._signals: dict[int, Signal] = {}
        self.started: list[Started] = []

    def made(
        self, bound: BoundExchange, table: Table, trips: Sequence[int]
    ) -> Exchange | HostExchange:
        """One of them in these trips of the Loops around it."""
        launch, attrs = bound.launch, bound.launch.attrs
        title = Label(launch.label or attrs.kind).of(attrs.kind, attrs.axis)
        group = self._communicators.get(attrs.axis)
        if isinstance(group, ByHost) or not self.driver.has_library:
            assert not isinstance(group, Communicator)
            return self._carried(bound, table, trips, group)
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
        signal = self._signal(launch)
        return Exchange(
            title, attrs.axis, len(self.started), launch.phase, moved,
            (count * dtype.size, taken * dtype.size), signal, group,
        )  # fmt: skip

    def _signal(self, launch: CollectiveLaunch) -> Signal:
        if launch.phase == "both":
            return Signal()
        return self._signals.setdefault(launch.ticket, Signal())

    def _carried(
        self, bound: BoundExchange, table: Table, trips: Sequence[int], group: ByHost | None
    ) -> HostExchange:
        """One that the host carries. Members of a bucket lie side by side in one block."""
        launch = bound.launch
        places = [operand.at(table, trips) for operand in bound.operands]
        size = (launch.dtype if launch.attrs.reduction else uint8).size
        unit, half = launch.dtype.size // size, launch.members
        elements = [
            (ends[-1].offset - ends[0].offset) // size + last * unit
            for ends, last in (
                (places[:half], bound.sizes[half - 1]), (places[half:], bound.sizes[-1]),
            )
        ]  # fmt: skip
        return HostExchange(
            launch, (places[0], places[half]), (elements[0], elements[1]), self._signal(launch),
            group,
        )  # fmt: skip

    def _side_by_side(
        self, places: Sequence[DevicePointer], last: int, size: int
    ) -> tuple[int, int]:
        """Where the members of a bucket begin, and the elements from there to the end of the last
        one, which has `last`.
        """
        first, end = (self.driver.address(place) for place in (places[0], places[-1]))
        return first, (end - first) // size + last

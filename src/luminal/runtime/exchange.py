"""A collective of several ranks as a device's driver queues it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from luminal.program.launch_list import Phase
from luminal.runtime.collectives.communicator import Communicator, Moved
from luminal.runtime.driver import Call, Driver


class Signal:
    """What a start and its wait share: the driver's event, once there is one."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event: Any = None


class Exchange(NamedTuple):
    """A collective or one end of it, with all its places, as `Driver.exchange` takes it.

    `number` is its place among those that a run starts, from 1; `sizes` are the bytes that it
    takes and gives. Without a communicator its ranks are only thought of: a copy stands for it.
    """

    title: str
    axis: str
    number: int
    phase: Phase
    moved: Moved
    sizes: tuple[int, int]
    signal: Signal
    communicator: Communicator | None

    def put(self, driver: Driver) -> None:
        """Queues it on its device."""
        driver.exchange(self)


def meets(calls: Iterable[Call | Exchange]) -> bool:
    """Whether any of these is done together with other ranks."""
    return any(isinstance(call, Exchange) and call.communicator is not None for call in calls)

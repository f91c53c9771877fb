"""The queue of a device beside its main one: collectives run there while kernels do.

A start has the side wait for all that the main queue was given by then, a wait has the main queue
wait for that one collective; the host waits for nothing. All collectives of a device are in one
queue, so they begin in the order in which all ranks queue them, whatever their mesh axes: two that
ran side by side might each hold what the other one needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from luminal.base.errors import CollectiveError
from luminal.memory.arrays import Array
from luminal.runtime.driver import DeviceBlock, DevicePointer, Driver
from luminal.runtime.exchange import Exchange

MOST = 1024  # collectives of a run for which there are numbers without being asked for more


class Queues(ABC):
    """The queues of a device by number, and events between them. While a queue is recorded, so is
    each that comes to wait for it.
    """

    @abstractmethod
    def queue(self) -> int:
        """The number of a new queue."""

    @abstractmethod
    def event(self) -> Any:
        """An event that nothing has reached."""

    @abstractmethod
    def record(self, event: Any, queue: int) -> None:
        """The event is reached when all is done that the queue was given by now."""

    @abstractmethod
    def follow(self, event: Any, queue: int) -> None:
        """What the queue is given from now on waits for the event as it was recorded last."""

    @abstractmethod
    def copy(self, source: int, target: int, size: int, queue: int) -> None:
        """Copies bytes within the device."""

    @abstractmethod
    def fetch(self, source: int, target: Array, queue: int) -> None:
        """Copies to an array of the driver's `staging`."""

    @abstractmethod
    def clear(self, target: int, size: int, queue: int) -> None:
        """Fills bytes of the device with zeros."""


class SideQueue:
    """The side queue of one device, which tells the host how far collectives have come."""

    def __init__(self, driver: Driver, queues: Queues) -> None:
        self._queues = queues
        self.queue = queues.queue()
        self._fork, self._join = queues.event(), queues.event()
        self._driver = driver
        self._blocks: list[DeviceBlock] = []  # recordings have the addresses of all of them
        self._most = self._numbers = 0
        self.reserve(MOST)
        self._reached: Array = driver.staging(8).view(np.int64)
        self._reached[:] = 0

    @property
    def reached(self) -> int:
        """How far the run has come whose turn it is: 2n - 1 in its collective n, the first of which
        is 1, and 2n behind it, while kernels run before the next one begins.
        """
        return int(self._reached[0])

    def reserve(self, collectives: int) -> None:
        """Has numbers for so many collectives of a run, each trip of a Loop counted."""
        if collectives > self._most:
            self._most = collectives
            numbers = np.arange(2 * collectives + 1, dtype=np.int64)
            block = self._driver.allocate(numbers.nbytes)
            self._driver.write(DevicePointer(block), numbers)
            self._numbers = self._driver.address(DevicePointer(block))
            self._blocks.append(block)

    def put(self, exchange: Exchange, main: int) -> None:
        """Queues one, in its order with what the queue `main` has and will have."""
        queues, signal = self._queues, exchange.signal
        if exchange.phase != "wait":
            queues.record(self._fork, main)
            queues.follow(self._fork, self.queue)
            self._tell(2 * exchange.number - 1)
            self._start(exchange)
            if signal.event is None:
                signal.event = queues.event()
            queues.record(signal.event, self.queue)
            self._tell(2 * exchange.number)
        if exchange.phase != "start":
            queues.follow(signal.event, main)

    def join(self, main: int) -> None:
        """Has the queue `main` wait for all that is here."""
        self._queues.record(self._join, self.queue)
        self._queues.follow(self._join, main)

    def _start(self, exchange: Exchange) -> None:
        assert exchange.communicator is not None
        try:
            exchange.communicator.queue(
                exchange.moved, self.queue, self._queues.clear, exchange.title
            )
        except CollectiveError as error:
            words = f"rank {exchange.communicator.rank}: {exchange.title} has failed: {error}"
            raise exchange.communicator.engine.fail(CollectiveError(words)) from None

    def _tell(self, number: int) -> None:
        self._queues.fetch(self._numbers + 8 * number, self._reached, self.queue)

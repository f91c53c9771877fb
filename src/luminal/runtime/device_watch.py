"""Waits for runs with collectives on a device, which other ranks may let wait for ever."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from luminal.base.errors import CollectiveError
from luminal.runtime.collectives.communicator import Communicator
from luminal.runtime.device_exchanges import Started
from luminal.runtime.driver import Driver, Mark

SPIN = 100e-6  # seconds without a pause: the host has nothing else to do, and a step is short
PAUSE = 1e-4  # then between looks at the device
LOOKS = 0.02  # between looks for what may have gone wrong


class Watch:
    """One run: `started` are the collectives it queues, in their order. Other ranks are told that
    this one has come so far.
    """

    def __init__(
        self, started: Sequence[Started], communicators: Mapping[str, Communicator], is_first: bool
    ) -> None:
        self._started, self._communicators, self._is_first = started, communicators, is_first
        firsts = dict(reversed(started))
        self._tickets: dict[str, Any] = {
            axis: communicator.engine.announce(firsts[axis])
            for axis, communicator in communicators.items()
            if axis in firsts
        }

    def wait(self, driver: Driver, mark: Mark) -> None:
        """Waits until the device has come to a mark. Raises CollectiveError where a rank or the
        network has failed, and CollectiveTimeoutError where one collective lasts longer than the
        deadline, which counts neither kernels nor other collectives; all ranks end then.
        """
        start = since = looked = time.monotonic()
        reached = -1
        while not driver.is_reached(mark):
            now = time.monotonic()
            if now - start > SPIN:
                time.sleep(PAUSE)
            if now - looked < LOOKS:
                continue
            looked = now
            if (here := driver.side.reached) != reached:
                reached, since = here, now
            self._look(reached // 2, now - since if reached % 2 else 0)

    def _look(self, ended: int, waited: float) -> None:
        # Before its first collective the device still tells of the run before.
        at = self._started[ended if ended < len(self._started) else 0]
        try:
            for axis, communicator in self._communicators.items():
                if trouble := communicator.trouble():
                    title = at.title if axis == at.axis else f"a collective over {axis!r}"
                    error = CollectiveError(
                        f"rank {communicator.rank}: {title} has failed on the device: {trouble}"
                    )
                    raise communicator.engine.fail(error)
            ticket = self._tickets[at.axis]
            ticket.title = at.title
            self._communicators[at.axis].engine.look(ticket, waited, first=self._is_first)
        except CollectiveError:
            # The device waits for ranks that do not come; so would whoever waits for the device.
            for communicator in self._communicators.values():
                communicator.abort()
            raise

"""Launch lists with all their addresses, and what drivers have recorded of them."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from luminal.memory.arrays import Array
from luminal.runtime.device_exchanges import Started
from luminal.runtime.driver import Call, Driver, Recording
from luminal.runtime.exchange import Exchange
from luminal.runtime.together import Joined

KEPT = 16
"""Lists of a program that are remembered, the least recently used go first: two for States that
take turns, times a few layouts."""
_EMPTY = np.zeros(0, np.uint8)


class Slot:
    """Memory of the host for what one run in flight sends and takes."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self.sent = self.taken = _EMPTY

    def reserve(self, driver: Driver, sent: int, taken: int) -> None:
        """Makes it as large as that; what was recorded of the old memory is not found again."""
        if len(self.sent) < sent or len(self.taken) < taken:
            self.number = next(self._numbers)
            self.sent = driver.staging(max(sent, len(self.sent)))
            self.taken = driver.staging(max(taken, len(self.taken)))


NOTHING = Slot()
"""Of runs that send and take nothing: one recording serves all of them."""
LAUNCHES = Slot()
"""Of launches alone, to be timed without the copies of a run."""


class Listing:
    """What one run queues (`Driver.put`), each with its launch site; `started` are the collectives
    among them, `joined` the same with several launches in one call. What comes again is recorded.
    """

    def __init__(
        self,
        calls: list[tuple[int, Any]],
        started: Sequence[Started] = (),
        joined: Joined | None = None,
    ) -> None:
        self.calls, self.started = calls, started
        self.joined = joined
        self.runs = 0
        self._recordings: dict[int, Recording] = {}
        self._is_recordable = True

    @property
    def queued(self) -> Sequence[Call | Exchange]:
        """What is queued where nobody asks for each launch: those that were joined as one call."""
        return [call for _, call in self.calls] if self.joined is None else self.joined.calls

    def recording(
        self, slot: Slot, make: Callable[[Sequence[Call | Exchange]], Recording | None]
    ) -> Recording | None:
        """The recording for this memory of the host; None where the device has none."""
        recording = self._recordings.get(slot.number)
        if recording is None and self._is_recordable:
            recording = make(self.queued)
            self._is_recordable = recording is not None
            if recording is not None:
                self._recordings[slot.number] = recording
        return recording

    def forget(self, slot: int) -> None:
        """Lets go of what was recorded for memory that is gone."""
        self._recordings.pop(slot, None)


class Listings:
    """Listings by all that stands in their calls."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Listing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Hashable, make: Callable[[], Listing]) -> Listing:
        """The listing of a key, made at first."""
        listing = self._known.get(key)
        if listing is None:
            if len(self._known) >= KEPT:
                self._known.popitem(last=False)
            listing = self._known[key] = make()
        else:
            self._known.move_to_end(key)
        return listing

    def forget(self, slot: int) -> None:
        """Lets go of recordings for memory of the host that is gone."""
        for listing in self._known.values():
            listing.forget(slot)

    def clear(self) -> None:
        """Forgets all: their addresses are no longer ours."""
        self._known.clear()


def staged(slot: Slot, sent: int, taken: int) -> tuple[Array, Array]:
    """The parts of a slot that a run with so many bytes copies."""
    return slot.sent[:sent], slot.taken[:taken]

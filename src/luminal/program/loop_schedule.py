"""In which trip and where in it the items of a Loop's pipeline run.

Items that keep their place among the trips, and all that these need, follow one another in the
order given. What a wait has them need otherwise runs as soon as its collective is through, beside
them. When that is, some trips in a row are played to see, with kernels by what work costs and
collectives by their bytes. No link is known where a program is compiled, and all ranks have to
agree: `launch_seconds` takes one. Far faster ones are hidden anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from luminal.program.launch_list import CollectiveLaunch, is_end
from luminal.program.launch_seconds import Seconds
from luminal.program.loop_body import Body

PLAYED, STEADY = 8, 3
"""Trips that are played, and the one whose items are looked at: by then all are alike."""


class Slot(NamedTuple):
    """An item of a body and its stage: how many passes after the first ones it runs."""

    item: int
    stage: int


def scheduled(body: Body, seconds: Seconds) -> list[Slot]:
    """The items of a pass in their order; all in stage 0 where nothing is to be gained."""
    bound = body.before(body.bound)
    waits = {k for k, item in enumerate(body.items) if is_end(item, "wait")}
    late = body.behind(waits - bound)
    starts = {wait - 1 for wait in waits & bound}
    needs = {start: body.before([start]) for start in starts}
    starts = {k for k in starts if not needs[k] & (body.bound | waits | late)}
    ahead = {need for start in starts for need in needs[start]}
    early = _waits_last(body, [k for k in range(len(body.items)) if k not in late | ahead])
    play = _Play(body, seconds, early, late, ahead)
    slots: list[Slot] = []
    for place in range(len(early) + 1):
        slots += play.slots(place)
        for k in early[place : place + 1]:
            slots.append(Slot(k, 0))
            if k - 1 in starts:  # the link is free for the next trip's
                slots += (Slot(n, -1) for n in sorted(needs[k - 1] & ahead))
                ahead -= needs[k - 1]
    first = min((slot.stage for slot in slots), default=0)
    return [Slot(item, stage - first) for item, stage in slots]


def _waits_last(body: Body, early: Sequence[int]) -> list[int]:
    """These items, each wait right before the first one that needs it."""
    out: list[int] = []
    held: list[int] = []
    for k in early:
        out += (wait for wait in held if wait in body.needs[k])
        held = [wait for wait in held if wait not in body.needs[k]]
        (held if is_end(body.items[k], "wait") else out).append(k)
    return out + held


class _Play:
    """Trips of a body in a row: when each of the `late` items runs beside the `early` ones."""

    def __init__(
        self, body: Body, seconds: Seconds, early: Sequence[int], late: set[int], ahead: set[int]
    ) -> None:
        self._body, self._early, self._late = body, early, late
        self._seconds = [seconds.of(item) for item in body.items]
        self._now = 0.0
        self._free: dict[str, float] = {}  # when the link of a mesh axis is
        self._through: dict[tuple[int, int], float] = {}  # by trip and wait
        self._done: set[tuple[int, int]] = set()
        self._left: list[tuple[int, int]] = []
        self._ran: dict[int, tuple[int, int]] = {}  # by late item of one trip, in this order
        for trip in range(PLAYED):
            self._left += ((trip, k) for k in sorted(late))
            self._done |= {(trip, k) for k in ahead}
            self._pass(trip)
        self._run_ready(PLAYED, 0)
        while self._left:
            self._now = max(self._now, min(self._through[key] for key in self._waits()))
            self._run_ready(PLAYED, 0)

    def slots(self, place: int) -> list[Slot]:
        """The late items that run before the early one at this place, of the first trips first."""
        most = self._body.trips - 1
        here = [
            Slot(k, min(stage, most))
            for k, (stage, at) in self._ran.items()
            if place == (at if stage <= most else len(self._early))
        ]
        return sorted(here, key=lambda slot: -slot.stage)

    def _pass(self, trip: int) -> None:
        for place, k in enumerate(self._early):
            self._run_ready(trip, place)
            if (trip - 1, k + 1) in self._waits():  # one at a time
                self._now = max(self._now, self._through[trip - 1, k + 1])
                self._run_ready(trip, place)
            self._run(trip, k)

    def _waits(self) -> list[tuple[int, int]]:
        """What is under way and waited for late."""
        return [key for key in self._left if key in self._through]

    def _run_ready(self, trip: int, place: int) -> None:
        """Runs what is left of trips and can run now."""
        is_any = True
        while is_any:
            is_any = False
            for key in [*self._left]:
                if self._is_ready(*key):
                    self._left.remove(key)
                    self._run(*key)
                    is_any = True
                    if key[0] == STEADY:
                        self._ran[key[1]] = trip - STEADY, place

    def _is_ready(self, trip: int, k: int) -> bool:
        before = trip - 1, k + 1
        if is_end(self._body.items[k], "start") and trip and before not in self._done:
            return False
        return self._through.get((trip, k), 0.0) <= self._now and all(
            (trip, need) in self._done for need in self._body.needs[k]
        )

    def _run(self, trip: int, k: int) -> None:
        item, seconds = self._body.items[k], self._seconds[k]
        if isinstance(item, CollectiveLaunch) and item.phase == "start":
            axis = item.attrs.axis
            self._free[axis] = max(self._now, self._free.get(axis, 0.0)) + seconds
            self._through[trip, k + 1] = self._free[axis]
        else:
            self._now = max(self._now + seconds, self._through.get((trip, k), 0.0))
        self._done.add((trip, k))

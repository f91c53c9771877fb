"""A list of launches in an order in which kernels run while collectives are under way.

At every moment the first launch runs that can, those first that some collective needs: the others
are left for when there is something to wait for (Graham, list scheduling, 1966).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from luminal.program.launch_list import (
    CollectiveLaunch,
    Launch,
    LoopLaunch,
    Program,
    collects,
    is_end,
)
from luminal.program.launch_seconds import Seconds
from luminal.program.loop_body import Body
from luminal.shape.expression import const


def filled(program: Program, launches: Sequence[Launch], seconds: Seconds) -> tuple[Launch, ...]:
    """The launches of a list, collectives as starts and waits, in the order that takes least time
    by the first that is ready.
    """
    if not any(isinstance(launch, CollectiveLaunch) for launch in launches):
        return tuple(launches)
    return tuple(_Play(Body(program, LoopLaunch(const(1), tuple(launches)), 0), seconds).order)


class _Play:
    """A list played: at every moment the first launch runs that can. `order` is what comes out."""

    def __init__(self, body: Body, seconds: Seconds) -> None:
        self._items, self._seconds = body.items, seconds
        starts = [
            k for k, item in enumerate(body.items) if collects(item) and not is_end(item, "wait")
        ]
        self._leading = body.before(starts)
        self._now = 0.0
        self._free: dict[str, float] = {}  # when the link of a mesh axis is
        self._through: dict[int, float] = {}  # by ticket
        self._ready: list[tuple[int, int]] = []  # by what is first, then in the list's order
        self._under_way: list[tuple[float, int]] = []  # waits whose needs are met, and until when
        self.order: list[Launch] = []
        users: list[list[int]] = [[] for _ in body.items]
        left = [len(needs) for needs in body.needs]
        for k, needs in enumerate(body.needs):
            for need in needs:
                users[need].append(k)
            if not needs:
                self._add(k)
        while self._ready or self._under_way:
            done = self._run()
            for user in users[done]:
                left[user] -= 1
                if not left[user]:
                    self._add(user)

    def _add(self, k: int) -> None:
        """Takes an item that nothing is left to do for but to wait."""
        item = self._items[k]
        if is_end(item, "wait"):
            heapq.heappush(self._under_way, (self._through[item.ticket], k))
        else:
            self._push(k)

    def _push(self, k: int) -> None:
        rank = 0 if is_end(self._items[k], "start") else 1 if k in self._leading else 2
        heapq.heappush(self._ready, (rank, k))

    def _run(self) -> int:
        """Runs the first item that can, after a pause where none can."""
        if not self._ready:
            self._now = max(self._now, self._under_way[0][0])
        while self._under_way and self._under_way[0][0] <= self._now:
            self._push(heapq.heappop(self._under_way)[1])
        k = heapq.heappop(self._ready)[1]
        item = self._items[k]
        self.order.append(item)
        if is_end(item, "start"):
            self._start(item)
            return k
        self._now += self._seconds.of(item)
        for start in _left_by(item) if isinstance(item, LoopLaunch) else ():
            self._start(start)
        return k

    def _start(self, launch: CollectiveLaunch) -> None:
        axis = launch.attrs.axis
        until = max(self._now, self._free.get(axis, 0.0)) + self._seconds.of(launch)
        self._free[axis] = self._through[launch.ticket] = until


def _left_by(loop: LoopLaunch) -> list[CollectiveLaunch]:
    """What the last trip of a Loop starts and does not wait for."""
    begun = {}
    for launch in loop.body:
        if is_end(launch, "start"):
            begun[launch.ticket] = launch
        elif is_end(launch, "wait"):
            begun.pop(launch.ticket, None)
    return [*begun.values()]

"""Calls timed in blocks, for sides that keep threads of their own and so disturb each other.

The threads of OpenMP and of XLA spin on for up to 200 ms after a call, and whoever is timed next
shares the cores with them: a product of 0.7 ms takes 5 right after another runtime's. So a pause
that outlasts them stands before each block, and an untimed call that warms the caches again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]


@dataclass(slots=True)
class Effort:
    """How long is measured: blocks, the seconds of one and of the pause before it. `quick`: only
    the rows that stand for the others.
    """

    blocks: int = 5
    seconds: float = 0.3
    pause: float = 0.2
    quick: bool = False

    def hurry(self) -> None:
        """For a table within minutes."""
        self.blocks, self.seconds, self.quick = 3, 0.06, True


EFFORT = Effort()


def in_block(call: Call, seconds: float | None = None, pause: float | None = None) -> float:
    """Seconds of a call: the median of a block of about `seconds`, after a pause and an untimed
    call.
    """
    time.sleep(EFFORT.pause if pause is None else pause)
    call()
    taken: list[float] = []
    while sum(taken) < (EFFORT.seconds if seconds is None else seconds) or len(taken) < 3:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def in_turns(calls: Mapping[str, Call]) -> dict[str, list[float]]:
    """Seconds of a call in each block, by the name of the side; the sides take turns."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(EFFORT.blocks):
        for name, call in calls.items():
            taken[name].append(in_block(call))
    return taken

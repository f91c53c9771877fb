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
    the rows that stand for the others. `named`: only rows whose names begin so.
    """

    blocks: int = 5
    seconds: float = 0.3
    pause: float = 0.2
    quick: bool = False
    named: str = ""

    def asks_for(self, name: str) -> bool:
        """Whether the row is wanted, or a row that its name begins."""
        return name.startswith(self.named) or self.named.startswith(name)

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


def in_turns(
    calls: Mapping[str, Call], between: Callable[[], None] | None = None
) -> dict[str, list[float]]:
    """Seconds of a call in each block, by the name of the side; the sides take turns, and each turn
    begins with another one. `between` runs after each turn.
    """
    taken: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(EFFORT.blocks):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            taken[name].append(in_block(calls[name]))
        if between is not None:
            between()
    return taken

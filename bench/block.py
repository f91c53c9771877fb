"""Calls timed in blocks, for sides that keep threads of their own and so disturb each other."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

BLOCKS = 5


def in_block(call: Callable[[], Any], seconds: float = 0.3, pause: float = 0.2) -> float:
    """Seconds of a call: the median of a block of about `seconds`, after a pause and an untimed
    call (another runtime's threads spin on after theirs).
    """
    time.sleep(pause)
    call()
    taken: list[float] = []
    while sum(taken) < seconds or len(taken) < 3:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)

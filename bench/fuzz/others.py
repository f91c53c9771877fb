"""What other processes take of the machine while something is measured.

A region of OpenMP ends with its last thread: where another process has one of the cores, each call
of PyTorch waits for a slice of the scheduler, 4 ms and more, and a ratio says nothing.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

STATISTICS = Path("/proc/stat")
IDLE = (3, 4)  # the columns of a core that waits, for anything or for a disk


class Others:
    """From its making on: the processor time of all others, in cores; 0 where no one counts it."""

    def __init__(self) -> None:
        self._before = _taken()

    def cores(self) -> float:
        """How many cores others have kept busy on average."""
        clock, own, every = (now - then for now, then in zip(_taken(), self._before, strict=True))
        return max(0.0, every - own) / clock


def _taken() -> tuple[float, float, float]:
    """The seconds of the clock, of this process, and of all."""
    every = 0.0
    if STATISTICS.exists():
        columns = STATISTICS.read_text("ascii").split("\n", 1)[0].split()[1:9]
        busy = (int(each) for place, each in enumerate(columns) if place not in IDLE)
        every = sum(busy) / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), time.process_time(), every

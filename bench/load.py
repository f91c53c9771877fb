"""What else the machine did while a row was measured.

The load average is what everyone knows, but it lags and counts the benchmark's own threads. So the
processor time of all other processes is told as well: what the system counted as busy, less what
this process and those it started took, and what the host of a virtual machine kept for itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from luminal.base.host import beginnings

PROC = Path("/proc")
MOST = 0.1
"""Of one core, taken by others: a row beside more is marked as one of a loaded machine."""


class Moment(NamedTuple):
    """Seconds of the clock, of all processors, of this process and its children; load average."""

    clock: float
    busy: float
    stolen: float
    own: float
    average: float


@dataclass(slots=True)
class Load:
    """Load averages of a minute before and after, cores' worth of others, of the host; seconds."""

    before: float = 0.0
    after: float = 0.0
    others: float = 0.0
    stolen: float = 0.0
    seconds: float = 0.0

    @property
    def is_loaded(self) -> bool:
        """Whether others took so much that the row is to be measured again."""
        return self.others + self.stolen > MOST

    def record(self) -> dict[str, Any]:
        """The load for JSON."""
        return {
            "before": self.before,
            "after": self.after,
            "others": round(self.others, 3),
            "stolen": round(self.stolen, 3),
            "seconds": round(self.seconds, 3),
            "loaded": self.is_loaded,
        }


@contextmanager
def watched() -> Iterator[Load]:
    """The load while the block runs; complete when it has ended."""
    load, start = Load(), now()
    load.before = start.average
    yield load
    end = now()
    load.after, load.seconds = end.average, end.clock - start.clock
    if load.seconds:
        busy, own = end.busy - start.busy, end.own - start.own
        load.others = max(0.0, busy - own) / load.seconds
        load.stolen = (end.stolen - start.stolen) / load.seconds


def now() -> Moment:
    """The counters at this moment."""
    ticks = os.sysconf("SC_CLK_TCK")
    fields = (PROC / "stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, softirq, stolen = (int(field) / ticks for field in fields[:8])
    busy = user + nice + system + irq + softirq
    own = sum(map(_seconds, beginnings(os.getpid())))
    return Moment(time.perf_counter(), busy, stolen, own, os.getloadavg()[0])


def _seconds(process: int) -> float:
    """Processor time of a process and of the children that it has waited for."""
    try:
        text = (PROC / str(process) / "stat").read_text()
    except OSError:  # it has ended: whoever started it has its time now
        return 0.0
    fields = text.rpartition(")")[2].split()  # from the state on: a name may hold blanks
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def available() -> int:
    """Bytes of memory that programs can have without any being ended, files in it let go."""
    lines = (PROC / "meminfo").read_text().splitlines()
    (said,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(said) << 10

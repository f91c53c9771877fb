"""Linux: the cores, memory and limits of this process.

Where cores differ, as on most AArch64 machines but servers, a team on fast and slow ones waits for
the slow ones: they take a piece of a launch as the others do. Only those count that are at least
half as fast as the fastest.
"""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from pathlib import Path

from luminal.base.host import posix
from luminal.base.host.posix import open_files, raise_open_files

CPUS = Path("/sys/devices/system/cpu")
CACHES = CPUS / "cpu0/cache"
PROCESSES = Path("/proc")

__all__ = [
    "beginnings",
    "cache_bytes",
    "core_ids",
    "memory",
    "open_files",
    "peak_bytes",
    "raise_open_files",
    "slow_core_ids",
]


def core_ids() -> list[int]:
    """The numbers of the fast cores that this process may use, which is what containers limit."""
    slow = slow_core_ids()
    return [core for core in _allowed() if core not in slow]


def slow_core_ids() -> list[int]:
    """The numbers of the cores that this process may use, and leaves to others."""
    cores = _allowed()
    least = max(map(_capacity, cores)) / 2
    return [core for core in cores if _capacity(core) < least]


def _allowed() -> list[int]:
    return sorted(os.sched_getaffinity(0))  # type: ignore[attr-defined, unused-ignore]  # not on a Mac


@functools.cache
def _capacity(core: int) -> int:
    """How fast a core is, of 1024: alike where the kernel does not tell them apart."""
    try:
        return int((CPUS / f"cpu{core}" / "cpu_capacity").read_text())
    except (OSError, ValueError):
        return 1024


def memory() -> tuple[int | None, int | None]:
    """Bytes of the machine's memory, and of what is free of it."""
    return posix.pages("SC_PHYS_PAGES"), posix.pages("SC_AVPHYS_PAGES")


def peak_bytes() -> int | None:
    """The most bytes that this process has held."""
    return posix.peak() * 1024  # getrusage(2) counts in KiB here


def beginnings(ancestor: int) -> dict[int, str]:
    """When a process has begun, and those that it has started, and those of these: by number,
    parents first. Of those that have ended there are none.

    A number and its beginning are of one process for ever; a number alone is given anew.
    """
    begun: dict[int, str] = {}
    left = [ancestor]
    for number in left:
        folder = PROCESSES / str(number)
        with suppress(OSError):  # it has ended
            state, *fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if state not in "ZX":
                begun[number] = fields[18]  # proc_pid_stat(5): the 22nd, state is the third
            for children in folder.glob("task/*/children"):
                left += map(int, children.read_text().split())
    return begun


def cache_bytes(level: int) -> int | None:
    """The bytes of a core's cache for data; None where the kernel says none."""
    for index in sorted(CACHES.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            if int((index / "level").read_text()) == level and kind != "Instruction":
                return _byte_count((index / "size").read_text().strip())
        except (OSError, ValueError):
            continue
    return None


def _byte_count(text: str) -> int:
    """Bytes of a size such as "32K"."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit

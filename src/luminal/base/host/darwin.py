"""macOS: the cores, memory and limits of this process, from sysctl.

Apple silicon has fast and slow cores, and a process cannot be bound to either: threads with work to
do are put on the fast ones. A team of as many threads as there are fast cores waits for no slow
one.
"""

from __future__ import annotations

import os
import subprocess

from luminal.base.host import posix
from luminal.base.host.posix import open_files
from luminal.base.host.sysctl import sysctl

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
    """A number for each core of the fastest kind (Intel's Macs have one kind)."""
    return list(range(sysctl("hw.perflevel0.logicalcpu") or os.cpu_count() or 1))


def slow_core_ids() -> list[int]:
    """The numbers of cores that no thread may be bound to: none, as no thread is bound here."""
    return []


def memory() -> tuple[int | None, int | None]:
    """Bytes of the machine's memory; how many are free is not said, as the system fills them."""
    return sysctl("hw.memsize"), None


def peak_bytes() -> int | None:
    """The most bytes that this process has held."""
    return posix.peak()  # getrusage(2) counts in bytes here


def raise_open_files(least: int) -> int:
    """Lets this process have as many files open as the kernel allows, if that is more than `least`;
    returns that number. The limit of the user is infinite here, and the kernel refuses it.
    """
    return posix.raise_open_files(least, sysctl("kern.maxfilesperproc"))


def beginnings(ancestor: int) -> dict[int, str]:
    """When a process has begun, and those that it has started, and those of these: by number,
    parents first. Of those that have ended there are none.
    """
    command = ["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    begun: dict[int, str] = {}
    children: dict[int, list[int]] = {}
    for row in text.splitlines():
        number, parent, state, since = row.split(None, 3)
        if not state.startswith("Z"):
            begun[int(number)] = since
        children.setdefault(int(parent), []).append(int(number))
    family = [ancestor]
    for process in family:
        family += children.get(process, [])
    return {process: begun[process] for process in family if process in begun}


def cache_bytes(level: int) -> int | None:
    """The bytes of a core's cache for data, of a fast core where there are two kinds.

    Cores of Apple silicon share the second level, of which each then has a part; the whole stands
    for the third level, which the system does not tell.
    """
    if level == 1:
        return sysctl("hw.perflevel0.l1dcachesize") or sysctl("hw.l1dcachesize")
    shared = sysctl("hw.perflevel0.l2cachesize")
    if shared is None:
        return sysctl(f"hw.l{level}cachesize")
    return shared // (sysctl("hw.perflevel0.cpusperl2") or 1) if level == 2 else shared

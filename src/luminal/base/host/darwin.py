"""macOS: the cores, memory and limits of this process, from sysctl.

Apple silicon has fast and slow cores, and a process cannot be bound to either: threads with work to
do are put on the fast ones. A team of as many threads as there are fast cores waits for no slow
one.
"""

from __future__ import annotations

import ctypes
import os

from luminal.base.host import posix
from luminal.base.host.posix import open_files

__all__ = ["core_ids", "memory", "open_files", "peak_bytes", "raise_open_files"]


def core_ids() -> list[int]:
    """A number for each core of the fastest kind (Intel's Macs have one kind)."""
    return list(range(sysctl("hw.perflevel0.logicalcpu") or os.cpu_count() or 1))


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


def sysctl(name: str) -> int | None:
    """A number that the kernel knows under a name; None where it knows none."""
    value = ctypes.c_uint64()  # the kernel writes 4 or 8 bytes, the low ones first
    size = ctypes.c_size_t(ctypes.sizeof(value))
    failed = ctypes.CDLL(None).sysctlbyname(
        name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return None if failed else value.value

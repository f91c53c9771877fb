"""Windows: the cores, memory and limits of this process."""

from __future__ import annotations

import ctypes
import os

UNLIMITED = 1 << 20


class _Memory(ctypes.Structure):
    """What GlobalMemoryStatusEx fills: MEMORYSTATUSEX of sysinfoapi.h."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("total", "free", *"abcde")),
    )


def core_ids() -> list[int]:
    """A number for each core."""
    return list(range(os.cpu_count() or 1))


def slow_core_ids() -> list[int]:
    """The numbers of cores that no thread may be bound to: none, as no thread is bound here."""
    return []


def memory() -> tuple[int | None, int | None]:
    """Bytes of the machine's memory, and of what is free of it."""
    status = _Memory(length=ctypes.sizeof(_Memory))
    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined, unused-ignore]
    if not kernel.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None, None
    return status.total, status.free


def peak_bytes() -> int | None:
    """The most bytes that this process has held; not known here."""
    return None


def open_files() -> int:
    """How many files this process may have open at once: handles have no limit worth a word."""
    return UNLIMITED


def raise_open_files(least: int) -> int:
    """How many files this process may have open: there is nothing to raise."""
    return UNLIMITED


def beginnings(ancestor: int) -> dict[int, str]:
    """When a process and those that it has started have begun; not asked for here."""
    return {}


def cache_bytes(level: int) -> int | None:
    """The bytes of a core's cache for data; not asked for here."""
    return None

"""Linux: the cores, memory and limits of this process."""

from __future__ import annotations

import os

from luminal.base.host import posix
from luminal.base.host.posix import open_files, raise_open_files

__all__ = ["core_ids", "memory", "open_files", "peak_bytes", "raise_open_files"]


def core_ids() -> list[int]:
    """The numbers of the cores that this process may use, which is what containers limit."""
    return sorted(os.sched_getaffinity(0))  # type: ignore[attr-defined, unused-ignore]  # not on a Mac


def memory() -> tuple[int | None, int | None]:
    """Bytes of the machine's memory, and of what is free of it."""
    return posix.pages("SC_PHYS_PAGES"), posix.pages("SC_AVPHYS_PAGES")


def peak_bytes() -> int | None:
    """The most bytes that this process has held."""
    return posix.peak() * 1024  # getrusage(2) counts in KiB here

"""What only the operating system tells or does: one module for each, with the same functions.

Whoever needs a fact of the host calls `host.core_ids()`, never `os.sched_getaffinity`, and so runs
on every system. A module asks nothing of the system it runs on until it is called, so the functions
of one system can be run on another against stand-ins.
"""

from __future__ import annotations

import sys

from luminal.base.errors import InputError

if sys.platform == "win32":
    from luminal.base.host import windows as _system
elif sys.platform == "darwin":
    from luminal.base.host import darwin as _system
else:
    from luminal.base.host import linux as _system

cache_bytes = _system.cache_bytes
core_ids = _system.core_ids
slow_core_ids = _system.slow_core_ids
memory = _system.memory
peak_bytes = _system.peak_bytes
open_files = _system.open_files
raise_open_files = _system.raise_open_files
beginnings = _system.beginnings


def require_posix(what: str) -> None:
    """Raises InputError on Windows, for what forks processes or sends them open files."""
    if sys.platform == "win32":
        raise InputError(f"{what} needs Linux or macOS (on Windows, WSL)")


__all__ = [
    "beginnings",
    "cache_bytes",
    "core_ids",
    "memory",
    "open_files",
    "peak_bytes",
    "raise_open_files",
    "require_posix",
    "slow_core_ids",
]

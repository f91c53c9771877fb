"""What Linux and macOS have in common."""

from __future__ import annotations

import os
import resource


def pages(name: str) -> int | None:
    """The bytes of a number of pages that `sysconf` counts under a name; None where it does
    not.
    """
    if name not in os.sysconf_names:
        return None
    return int(os.sysconf(name)) * int(os.sysconf("SC_PAGE_SIZE"))


def peak() -> int:
    """The most memory of this process so far, in the system's own unit."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def open_files() -> int:
    """How many files this process may have open at once."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_open_files(least: int, most: int | None = None) -> int:
    """Lets this process have as many files open as the system allows, at most `most`, if that is
    more than `least`; returns that number.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = allowed if most is None else min(allowed, most)
    if wanted > least:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, allowed))
    return wanted

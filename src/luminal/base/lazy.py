"""Things by where they are, imported when they are first asked for: what a process does not use
does not slow its start.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


# Tables of architectures, families and subcommands name modules by text: 108 of 366 modules, and
# 0.05 s, that a start does not need.
def found(place: str) -> Any:
    """A module, "luminal.nn", or what is in one, "luminal.nn:Linear"."""
    module, _, name = place.partition(":")
    owner = import_module(module)
    return getattr(owner, name) if name else owner

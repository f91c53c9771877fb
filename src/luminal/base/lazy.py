"""Things by where they are, imported when they are first asked for: what a process does not use
does not slow its start.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def found(place: str) -> Any:
    """A module, "luminal.nn", or what is in one, "luminal.nn:Linear"."""
    module, _, name = place.partition(":")
    made = import_module(module)
    return getattr(made, name) if name else made

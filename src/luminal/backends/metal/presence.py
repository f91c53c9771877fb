"""The devices of Metal, or why there are none."""

from __future__ import annotations

import platform
from typing import Any

from luminal.base import installation


def bindings() -> Any:
    """pyobjc's module. Raises ImportError where there is none."""
    import Metal

    return Metal


def devices() -> tuple[Any, ...]:
    """The devices that the system has; none where `absence` says why."""
    try:
        return tuple(bindings().MTLCopyAllDevices())
    except ImportError:
        return ()


def absence() -> str | None:
    """Why Metal cannot be used here; None where it can."""
    if devices():
        return None
    if platform.system() != "Darwin":
        return "Metal is a part of macOS"
    try:
        bindings()
    except ImportError:
        return f"pyobjc-framework-Metal is not installed; {installation.hint('metal')}"
    return "macOS finds no device"

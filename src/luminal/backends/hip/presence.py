"""Whether there are HIP devices, and why not."""

from __future__ import annotations

from typing import Any

from luminal.base import installation


def bindings() -> Any:
    """hip-python's module of the runtime. Raises ImportError where there is none."""
    from hip import hip

    return hip


def device_count() -> int:
    """The number of devices; 0 where `absence` says why."""
    count, _ = _found()
    return count


def absence() -> str | None:
    """Why HIP cannot be used here; None where it can."""
    _, reason = _found()
    return reason


def properties(number: int) -> Any:
    """What ROCm tells of a device that is there."""
    _, told = bindings().hipGetDeviceProperties(number)
    return told


def _found() -> tuple[int, str | None]:
    try:
        hip = bindings()
    except ImportError:
        return 0, f"hip-python is not installed; {installation.hint('hip')}"
    try:
        status, count = hip.hipGetDeviceCount()  # looks for the library
    except (ImportError, OSError, RuntimeError) as error:
        return 0, f"hip-python finds no ROCm ({error}); install AMD's driver and runtime"
    if status != hip.hipError_t.hipSuccess or not count:
        return 0, f"ROCm finds no device ({status.name})"
    return count, None

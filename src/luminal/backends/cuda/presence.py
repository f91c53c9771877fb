"""Whether there are CUDA devices, and why not.

The driver is asked through ctypes: cuda-core asked on a machine that has none answers with a hang.
"""

from __future__ import annotations

import ctypes
import importlib.util

from luminal.base import installation

LIBRARY = "libcuda.so.1"
PACKAGES = ("cuda.core", "cuda.bindings.nvrtc")


def device_count() -> int:
    """The number of devices that the driver has; 0 where `absence` says why."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def absence() -> str | None:
    """Why CUDA cannot be used here; None where it can."""
    missing = [name for name in PACKAGES if not _is_installed(name)]
    if missing:
        return f"there is no {' and no '.join(missing)}; {installation.hint('cuda')}"
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return f"there is no {LIBRARY}; install NVIDIA's driver"
    status = driver.cuInit(0)
    if status:
        return f"the driver does not start: cuInit gives CUDA error {status}"
    if device_count() == 0:
        return "the driver finds no device"
    return None


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False

"""Whether there are CUDA devices, and why not.

The driver is asked through ctypes: cuda-core asked on a machine that has none answers with a hang.
"""

from __future__ import annotations

import ctypes
import importlib.util

from luminal.base import installation

LIBRARY = "libcuda.so.1"
PACKAGES = ("cuda.core", "cuda.bindings.nvrtc")
ATTRIBUTES = {
    "group_lanes": 1,  # CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, and so on
    "subgroup": 10,
    "clock": 13,  # kHz
    "units": 16,
    "memory_clock": 36,  # kHz
    "memory_bits": 37,
    "cache_bytes": 38,
    "unit_lanes": 39,
    "major": 75,
    "minor": 76,
    "unit_bytes": 81,
    "unit_registers": 82,
    "group_bytes": 97,  # with what a launch asks for
}
"""CUdevice_attribute by what it is here."""


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


def attributes(number: int) -> dict[str, int]:
    """Facts of a device that is there; 0 where the driver does not say."""
    driver = ctypes.CDLL(LIBRARY)
    device, value, facts = ctypes.c_int(), ctypes.c_int(), {}
    driver.cuDeviceGet(ctypes.byref(device), number)
    for name, attribute in ATTRIBUTES.items():
        failed = driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        facts[name] = 0 if failed else value.value
    return facts


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

"""Numbers of the kernel of macOS."""

from __future__ import annotations

import ctypes


def sysctl(name: str) -> int | None:
    """A number that the kernel knows under a name; None where it knows none."""
    value = ctypes.c_uint64()  # the kernel writes 4 or 8 bytes, the low ones first
    size = ctypes.c_size_t(ctypes.sizeof(value))
    failed = ctypes.CDLL(None).sysctlbyname(
        name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    )
    return None if failed else value.value

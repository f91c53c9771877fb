"""hipBLASLt, where ROCm has installed it: where it is found, and its numbers (hipblaslt.h,
hipblas-common.h and library_types.h of ROCm 6 and 7).
"""

from __future__ import annotations

import ctypes
import functools

from luminal.backends.hip import rocblas
from luminal.backends.lt import Interface, Lt, loadable, result_of
from luminal.base.errors import CompileError

NAME = "hipBLASLt"
LIBRARIES = ("hipblaslt",)
"""What target facts call it."""
FILES = ("libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so")


class _Algorithm(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint8 * 16), ("most", ctypes.c_size_t)]


INTERFACE = Interface(
    name=NAME,
    prefix="hipblasLt",
    result=result_of(_Algorithm),
    dtypes={"f32": 0, "f64": 1, "f16": 2, "i8": 3, "i32": 10, "bf16": 14},
    compute={"f32": 2, "f64": 7, "i32": 9},
    operations=(111, 112),
    turned=(0, 1),
    epilogue=(2, 4),
    bias=(3, 4),
    batch=(0, 1),
    workspace=1,
)


@functools.cache
def path() -> str | None:
    """The library's name, by which the loader finds it; None where it does not."""
    return loadable(FILES)


def installed() -> tuple[str, ...]:
    """The libraries that kernels may call here, as target facts name them."""
    return LIBRARIES if path() is not None else ()


def version() -> str:
    """The library, as far as it is known without a handle, or rocBLAS, which then stands in its
    place. Raises CompileError where neither is installed.
    """
    other = rocblas.path() if path() is None else None
    return (other or _found()).removeprefix("lib")


def opened() -> Lt:
    """The library, for the device that is current. Raises CompileError as `version` does."""
    return Lt(_found(), INTERFACE)


def _found() -> str:
    name = path()
    if name is None:
        raise CompileError(f"{NAME} is not installed; it is a package of ROCm")
    return name

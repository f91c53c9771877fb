"""cuBLASLt, where it is installed: where it is found, and its numbers (cublasLt.h, cublas_api.h and
library_types.h of CUDA 12 and 13).
"""

from __future__ import annotations

import ctypes
import functools
from importlib.util import find_spec
from pathlib import Path

from luminal.backends.cuda import wheels
from luminal.backends.lt import Interface, Lt, loadable, result_of
from luminal.base import installation
from luminal.base.errors import CompileError

NAME = "cuBLASLt"
LIBRARIES = ("cublaslt", "cublaslt-tf32")
"""What target facts call it: of factors as they are, and of narrowed ones."""
VERSIONS = (13, 12)  # of CUDA, by which the library's file is named
WHEELS = ("nvidia-cublas", "nvidia-cublas-cu12")


class _Algorithm(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64 * 8)]


INTERFACE = Interface(
    name=NAME,
    prefix="cublasLt",
    result=result_of(_Algorithm),
    dtypes={
        "f32": 0,
        "f64": 1,
        "f16": 2,
        "i8": 3,
        "i32": 10,
        "bf16": 14,
        "e4m3": 28,
        "e5m2": 29,
    },
    compute={"f32": 68, "f64": 70, "i32": 72, "tf32": 77},
    operations=(0, 1),
    turned=(3, 4),
    epilogue=(7, 4),
    bias=(8, 26),
    batch=(5, 6),
    workspace=1,
    sums=(3, 2),
    alignments=(5, 6, 7, 8),
    status="cublasLtGetStatusName",
)


@functools.cache
def path() -> str | None:
    """The library's file, or its name where the loader finds it; None where there is none."""
    name = loadable([f"libcublasLt.so.{version}" for version in VERSIONS])
    if name is not None:
        return name
    files = [file for wheel in WHEELS for file in wheels.files(wheel, "libcublasLt.so")]
    torch = find_spec("torch")  # some of its wheels bring the library themselves
    for folder in (torch.submodule_search_locations or ()) if torch is not None else ():
        files += map(str, Path(folder, "lib").glob("libcublasLt*.so*"))
    return next((file for file in files if Path(file).exists()), None)


def installed() -> tuple[str, ...]:
    """The libraries that kernels may call here, as target facts name them."""
    return LIBRARIES if path() is not None else ()


def version() -> str:
    """The version of the library. Raises CompileError where it is not installed or cannot be
    loaded.
    """
    library = _loaded()
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    number: int = library.cublasLtGetVersion()
    major, rest = divmod(number, 10000)
    return f"{major}.{rest // 100}.{rest % 100}"


def opened() -> Lt:
    """The library, for the device that is current. Raises CompileError as `version` does."""
    _loaded()
    return Lt(path() or "", INTERFACE)


def _loaded() -> ctypes.CDLL:
    file = path()
    if file is None:
        raise CompileError(f"{NAME} is not installed; {installation.hint('cublas')}")
    try:
        return ctypes.CDLL(file)
    except OSError as error:
        raise CompileError(f"{NAME} cannot be loaded: {error}") from None

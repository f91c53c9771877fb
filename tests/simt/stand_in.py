"""The libraries that stand in for vendors', and texts as the machine code that they load."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from luminal.backends.cuda import nvrtc
from luminal.backends.hip import hiprtc
from luminal.base import config
from tests.simt.compiling import (
    HERE,
    cached,
    compile,
    linked,
    runtime_library,
    sources,
    write_library,
)

CUDA, HIP = "libcuda.so.1", "libamdhip64.so"
SOURCES = {CUDA: ("stand_in_cuda.cpp",), HIP: ("stand_in_hip.cpp", "stand_in_cuda.cpp")}
NCCL = {CUDA: "libnccl.so.2", HIP: "librccl.so"}
"""The library of collectives by the driver that it goes with."""
LT = {CUDA: "libcublasLt.so.13", HIP: "libhipblaslt.so"}
"""The library of products, likewise."""
ROCBLAS = "librocblas.so.4"


def headers() -> Path | None:
    """The folder of cuda.h, which the wheel nvidia-cuda-runtime brings; None without it."""
    try:
        files = metadata.distribution("nvidia-cuda-runtime").files or []
    except metadata.PackageNotFoundError:
        return None
    header = next((file for file in files if file.name == "cuda.h"), None)
    return None if header is None else Path(str(header.locate())).parent


def library(name: str, *flags: str) -> Path:
    """CUDA's or HIP's, built once; it has a folder of its own, for the loader's search path."""
    runtime, own = runtime_library(), SOURCES[name]
    found = headers()
    assert found is not None, "no cuda.h: install the extra cuda"
    folder = cached("stand-in", str(runtime), *flags, *sources((*own, "runtime.h", "fibres.h")))
    target = folder.with_suffix("") / name
    if not target.exists():
        soname = f"-Wl,-soname,{name}"
        parts = (*flags, "-I", found, HERE / own[0], *linked(runtime), soname)
        write_library(target, "-O1", *parts)
    return target


def _offset(hip: Any, field: str) -> int:
    """Where a field of the record of properties starts: these headers come with ROCm alone."""
    properties = hip.hipDeviceProp_t()
    size, start = properties.c_sizeof(), properties.as_c_void_p().value
    ctypes.memset(start, 0, size)
    for offset in range(size):
        ctypes.memset(start + offset, ord("x"), 1)
        if getattr(properties, field):
            return offset
        ctypes.memset(start + offset, 0, 1)
    raise AssertionError(field)


def hip_flags(hip: Any) -> tuple[str, ...]:
    """What the stand-in of HIP has to know of hip-python's record of properties."""
    fields = {
        "MULTIPROCESSORS_OFFSET": "multiProcessorCount",
        "MOST_THREADS_OFFSET": "maxThreadsPerBlock",
        "WARP_OFFSET": "warpSize",
        "BUS_OFFSET": "pciBusID",
        "ARCHITECTURE_OFFSET": "gcnArchName",
    }
    size = f"-DPROPERTIES_SIZE={hip.hipDeviceProp_t().c_sizeof()}"
    return size, *(f"-D{name}={_offset(hip, field)}" for name, field in fields.items())


def nccl_library(driver: str) -> Path:
    """NCCL's or RCCL's, built once, which finds this driver where it is loaded."""
    source, flags = "stand_in_nccl.cpp", ("-O1", f'-DDRIVER="{driver}"')
    folder = cached("stand-in-nccl", *flags, *sources((source,)))
    target = folder.with_suffix("") / NCCL[driver]
    if not target.exists():
        write_library(target, *flags, HERE / source, f"-Wl,-soname,{target.name}", "-lpthread")
    return target


def lt_library(driver: str) -> Path:
    """cuBLASLt's or hipBLASLt's, built once, which finds this driver where it is loaded."""
    source = "stand_in_lt.cpp"
    kind = ("-DPREFIX=cublasLt",) if driver == CUDA else ("-DPREFIX=hipblasLt", "-DOF_HIP")
    flags = ("-O2", *kind, f'-DDRIVER="{driver}"')
    folder = cached("stand-in-lt", *flags, *sources((source,)))
    target = folder.with_suffix("") / LT[driver]
    if not target.exists():
        write_library(target, *flags, HERE / source, f"-Wl,-soname,{target.name}")
    return target


def rocblas_library() -> Path:
    """The library of machines without hipBLASLt, likewise."""
    names, flags = ("stand_in_rocblas.cpp", "stand_in_lt.cpp"), ("-O2", f'-DDRIVER="{HIP}"')
    folder = cached("stand-in-rocblas", *flags, *sources(names))
    target = folder.with_suffix("") / ROCBLAS
    if not target.exists():
        write_library(target, *flags, HERE / names[0], f"-Wl,-soname,{ROCBLAS}")
    return target


def code(text: str, dialect: str, *, checked: bool = True) -> bytes:
    """What the stand-ins take for machine code of the text."""
    return compile(text, dialect, checked=checked).library.read_bytes()


@contextmanager
def nvrtc_stands_in(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, checked: bool = True, **settings: Any
) -> Iterator[list[str]]:
    """Has texts of CUDA compiled for the stand-in (for their values alone, if not `checked`), with
    a cache of its own and these settings, and the stand-in as new afterwards; gives the
    architectures that are asked for.
    """
    architectures: list[str] = []

    def compiled(text: str, architecture: str) -> nvrtc.Cubin:
        architectures.append(architecture)
        return nvrtc.Cubin(code(text, "cuda", checked=checked), 32, 0, 0)

    monkeypatch.setattr(nvrtc, "compile", compiled)
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    with config.override(LUMINAL_CACHE_DIR=folder, **settings):
        yield architectures
    ctypes.CDLL(CUDA).stand_in_reset()


@contextmanager
def hiprtc_stands_in(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *, checked: bool = True, **settings: Any
) -> Iterator[list[str]]:
    """As `nvrtc_stands_in`, for texts of HIP."""
    architectures: list[str] = []

    def compiled(text: str, architecture: str) -> bytes:
        architectures.append(architecture)
        return code(text, "hip", checked=checked)

    monkeypatch.setattr(hiprtc, "compile", compiled)
    monkeypatch.setattr(hiprtc, "version", lambda: (7, 0))
    with config.override(LUMINAL_CACHE_DIR=folder, **settings):
        yield architectures
    ctypes.CDLL(HIP).stand_in_reset()


def run(cases: Path, libraries: Path | Sequence[Path], *options: str, **environment: str) -> None:
    """The tests in a file, in a process that finds these libraries."""
    every = [libraries] if isinstance(libraries, Path) else libraries
    path = [*(str(library.parent) for library in every), os.environ.get("LD_LIBRARY_PATH", "")]
    environment |= {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, path))}
    plain = ("-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:benchmark")
    command = [sys.executable, "-m", "pytest", *plain, *options, str(cases)]
    done = subprocess.run(
        command,
        env=os.environ | environment,
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

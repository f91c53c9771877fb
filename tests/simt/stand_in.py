"""The stand-in CUDA driver as a file, and texts as the "cubins" that it loads."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from tests.simt.compiling import (
    HERE,
    cached,
    compile,
    linked,
    runtime_library,
    sources,
    write_library,
)

SOURCE = "stand_in_cuda.cpp"
LIBRARY = "libcuda.so.1"


def headers() -> Path | None:
    """The folder of cuda.h, which the wheel nvidia-cuda-runtime brings; None without it."""
    try:
        files = metadata.distribution("nvidia-cuda-runtime").files or []
    except metadata.PackageNotFoundError:
        return None
    header = next((file for file in files if file.name == "cuda.h"), None)
    return None if header is None else Path(str(header.locate())).parent


def library() -> Path:
    """The driver, built once; it has a folder of its own, for the loader's search path."""
    runtime = runtime_library()
    found = headers()
    assert found is not None, "no cuda.h: install luminal[cuda]"
    folder = cached("stand-in", str(runtime), *sources((SOURCE, "runtime.h", "fibres.h")))
    target = folder.with_suffix("") / LIBRARY
    if not target.exists():
        soname = f"-Wl,-soname,{LIBRARY}"
        write_library(target, "-O1", "-I", found, HERE / SOURCE, *linked(runtime), soname)
    return target


def cubin(text: str) -> bytes:
    """What the stand-in takes for a cubin of the text."""
    return compile(text, "cuda").library.read_bytes()

"""What PyTorch's CPU build lacks of CUDA, as a library that is loaded before it."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

from tests.simt.compiling import HERE, cached, sources, write_library


def library() -> Path:
    """The library, built once for an installed PyTorch: it names the folder it was linked in."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent
    built_for = (metadata.version("torch"), str(folder))
    target = cached("torch-cuda", *built_for, *sources(("torch_cuda.cpp",)))
    if not target.exists():
        headers, own = folder / "include", folder / "lib"
        linked = (f"-L{own}", f"-Wl,-rpath,{own}", "-lc10", "-ltorch_cpu")
        write_library(target, "-O1", "-I", headers, HERE / "torch_cuda.cpp", *linked)
    return target

"""Runs the cases of hipBLASLt and rocBLAS over the stand-ins, in processes that find them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from luminal.backends import registry
from tests.simt import compiling, stand_in

pytest.importorskip("hip", reason="needs hip-python: the extra `hip`")

HAS_ALL = compiling.compiler() is not None and stand_in.headers() is not None


@pytest.mark.long
@pytest.mark.skipif(not HAS_ALL, reason="needs a C++ compiler, and cuda.h: nvidia-cuda-runtime")
def test_products_by_a_library() -> None:
    cases = Path(__file__).parents[1] / "c_family/library_cases.py"
    flags = stand_in.hip_flags(import_module("hip").hip)
    libraries = stand_in.library(stand_in.HIP, *flags), stand_in.lt_library(stand_in.HIP)
    stand_in.run(cases, libraries, "-m", "long or not long", LIBRARY_VENDOR=registry.ROCM)


@pytest.mark.long
@pytest.mark.skipif(not HAS_ALL, reason="needs a C++ compiler, and cuda.h: nvidia-cuda-runtime")
def test_products_by_the_older_library() -> None:
    flags = stand_in.hip_flags(import_module("hip").hip)
    libraries = stand_in.library(stand_in.HIP, *flags), stand_in.rocblas_library()
    stand_in.run(Path(__file__).with_name("rocblas_cases.py"), libraries)

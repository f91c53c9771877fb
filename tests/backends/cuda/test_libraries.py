"""Runs the cases of cuBLASLt over the stand-ins, in a process that finds both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simt import compiling, stand_in

pytest.importorskip("cuda.core", reason="needs cuda-core: the extra `cuda`")

HAS_ALL = compiling.compiler() is not None and stand_in.headers() is not None


@pytest.mark.skipif(not HAS_ALL, reason="needs a C++ compiler, and cuda.h: nvidia-cuda-runtime")
@pytest.mark.parametrize("share", ["not long", pytest.param("long", marks=pytest.mark.long)])
def test_products_by_a_library(share: str) -> None:
    cases = Path(__file__).parents[1] / "c_family/library_cases.py"
    libraries = stand_in.library(stand_in.CUDA), stand_in.lt_library(stand_in.CUDA)
    stand_in.run(cases, libraries, "-m", share)

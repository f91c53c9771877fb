"""Runs the cases of persistent kernels over the stand-in, in a process that finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simt import compiling, stand_in

pytest.importorskip("cuda.core", reason="needs cuda-core: the extra `cuda`")


@pytest.mark.skipif(compiling.compiler() is None, reason="no C++ compiler is installed")
@pytest.mark.skipif(stand_in.headers() is None, reason="needs cuda.h: nvidia-cuda-runtime")
def test_programs_as_one_kernel() -> None:
    cases = Path(__file__).with_name("together_cases.py")
    stand_in.run(cases, stand_in.library(stand_in.CUDA))

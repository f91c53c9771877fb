"""Runs the cases of persistent kernels over the stand-in, in a process that finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simt import compiling, stand_in

pytest.importorskip("cuda.core", reason="needs cuda-core: the extra `cuda`")


HAS_ALL = compiling.compiler() is not None and stand_in.headers() is not None


@pytest.mark.skipif(not HAS_ALL, reason="needs a C++ compiler, and cuda.h: nvidia-cuda-runtime")
@pytest.mark.parametrize("share", ["not long", pytest.param("long", marks=pytest.mark.long)])
def test_programs_as_one_kernel(share: str) -> None:
    cases = Path(__file__).with_name("together_cases.py")
    stand_in.run(cases, stand_in.library(stand_in.CUDA), "-m", share)

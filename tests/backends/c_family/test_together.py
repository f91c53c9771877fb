"""Runs the cases of persistent kernels over the stand-in, in a process that finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simt import compiling, stand_in

HAS_ALL = compiling.compiler() is not None and stand_in.headers() is not None


def library(device: str) -> Path:
    """The driver that stands in."""
    if device == "cuda":
        pytest.importorskip("cuda.core", reason="needs cuda-core: the extra `cuda`")
        return stand_in.library(stand_in.CUDA)
    hip = pytest.importorskip("hip", reason="hip-python is not installed (extra hip)").hip
    return stand_in.library(stand_in.HIP, *stand_in.hip_flags(hip))


@pytest.mark.skipif(not HAS_ALL, reason="needs a C++ compiler, and cuda.h: nvidia-cuda-runtime")
@pytest.mark.parametrize(
    ("device", "share"),
    [
        ("cuda", "not long"),
        pytest.param("cuda", "long", marks=pytest.mark.long),
        pytest.param("hip", "not long", marks=pytest.mark.long),
        pytest.param("hip", "long", marks=pytest.mark.long),
    ],
)
def test_programs_as_one_kernel(device: str, share: str) -> None:
    cases = Path(__file__).with_name("together_cases.py")
    stand_in.run(cases, library(device), "-m", share, DEVICE=device)


@pytest.mark.long
@pytest.mark.skipif(not HAS_ALL, reason="needs a C++ compiler, and cuda.h: nvidia-cuda-runtime")
@pytest.mark.parametrize("device", ["cuda", "hip"])
@pytest.mark.parametrize("name", ["decode", "prompt", "resnet", "training", "calls"])
def test_whole_models(name: str, device: str) -> None:
    """Half a minute of a core each, and up to 2 GB."""
    cases = Path(__file__).with_name("whole_cases.py")
    products = stand_in.lt_library({"cuda": stand_in.CUDA, "hip": stand_in.HIP}[device])
    stand_in.run(cases, [library(device), products], "-m", "long", "-k", name, DEVICE=device)

"""`torch.compile` on tensors of CUDA, over a driver that stands in for NVIDIA's (tests/simt)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from luminal.backends.cuda import presence
from tests.simt import compiling, stand_in, torch_library


@pytest.mark.parametrize("share", ["not long", pytest.param("long", marks=pytest.mark.long)])
def test_tensors_of_cuda_over_the_stand_in(share: str) -> None:
    """In a process of its own: in this one nothing may believe that there is a device."""
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    for package in presence.PACKAGES:
        pytest.importorskip(package, reason=f"{package} is not installed (extra cuda)")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed (extra torch)")
    stand_in.run(
        Path(__file__).with_name("cuda_cases.py"),
        stand_in.library(stand_in.CUDA),
        *("-m", share),
        LD_PRELOAD=str(torch_library.library()),
        STAND_IN_DEVICES="2",
    )

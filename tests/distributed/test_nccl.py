"""Ranks on devices, over stand-ins for a driver and its library of collectives (tests/simt)."""

from __future__ import annotations

from pathlib import Path

import pytest

from luminal.backends.cuda import presence
from tests.simt import compiling, stand_in

CASES = Path(__file__).with_name("nccl_cases.py")


def test_ranks_on_devices_of_cuda() -> None:
    """In a process of its own: in this one nothing may believe that there is a device."""
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    for package in (*presence.PACKAGES, "nccl.bindings"):
        pytest.importorskip(package, reason=f"{package} is not installed (extras cuda and nccl)")
    libraries = stand_in.library(stand_in.CUDA), stand_in.nccl_library(stand_in.CUDA)
    stand_in.run(CASES, libraries, STAND_IN_DEVICES="4")

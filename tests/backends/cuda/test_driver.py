"""The CUDA backend's host side over a driver that stands in for NVIDIA's (tests/simt)."""

from __future__ import annotations

from pathlib import Path

import pytest

from luminal.backends.cuda import presence
from tests.simt import compiling, stand_in

CASES = Path(__file__).with_name("stand_in_cases.py")


def test_absence_has_a_reason() -> None:
    reason = presence.absence()
    assert (reason is None) == (presence.device_count() > 0)
    assert reason is None or "install" in reason or "driver" in reason


def test_the_driver_over_the_stand_in() -> None:
    """In a process of its own: in this one nothing may believe that there is a device."""
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    for package in presence.PACKAGES:
        pytest.importorskip(package, reason=f"{package} is not installed (extra cuda)")
    stand_in.run(CASES, stand_in.library(stand_in.CUDA))

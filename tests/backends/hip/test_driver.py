"""The HIP backend's host side over a runtime that stands in for AMD's (tests/simt)."""

from __future__ import annotations

from pathlib import Path

import pytest

from luminal.backends.hip import presence
from tests.simt import compiling, stand_in

CASES = Path(__file__).with_name("stand_in_cases.py")


def test_absence_has_a_reason() -> None:
    reason = presence.absence()
    assert (reason is None) == (presence.device_count() > 0)
    assert reason is None or "install" in reason or "device" in reason


@pytest.mark.long
def test_the_driver_over_the_stand_in() -> None:
    """In a process of its own: in this one nothing may believe that there is a device."""
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    if stand_in.headers() is None:
        pytest.skip("cuda.h, which the stand-in takes its records from, needs the extra cuda")
    hip = pytest.importorskip("hip", reason="hip-python is not installed (extra hip)").hip
    stand_in.run(CASES, stand_in.library(stand_in.HIP, *stand_in.hip_flags(hip)))

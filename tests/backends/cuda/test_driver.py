"""The CUDA backend's host side over a driver that stands in for NVIDIA's (tests/simt)."""

from __future__ import annotations

from pathlib import Path

import pytest

from luminal.backends.cuda import presence
from tests.simt import compiling, stand_in

HERE = Path(__file__).parent


def test_absence_has_a_reason() -> None:
    reason = presence.absence()
    assert (reason is None) == (presence.device_count() > 0)
    assert reason is None or "install" in reason or "driver" in reason


@pytest.mark.parametrize("cases", ["stand_in_cases.py", "program_cases.py", "box_cases.py"])
def test_it_runs_over_the_stand_in(cases: str) -> None:
    """In a process of its own: in this one nothing may believe that there is a device."""
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    for package in presence.PACKAGES:
        pytest.importorskip(package, reason=f"{package} is not installed (extra cuda)")
    stand_in.run(HERE / cases, stand_in.library(stand_in.CUDA))

"""The CUDA backend's host side over a driver that stands in for NVIDIA's (tests/simt)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from luminal.backends.cuda import presence
from tests.simt import compiling

CASES = Path(__file__).with_name("stand_in_cases.py")
ROOT = Path(__file__).parents[3]


def test_absence_has_a_reason() -> None:
    reason = presence.absence()
    assert (reason is None) == (presence.device_count() > 0)
    assert reason is None or "install" in reason or "driver" in reason


def test_the_driver_over_the_stand_in() -> None:
    """In a process of its own: in this one nothing may believe that there is a device."""
    if compiling.compiler() is None:
        pytest.skip("no C++ compiler is installed")
    for package in presence.PACKAGES:
        pytest.importorskip(package, reason=f"{package} is not installed (luminal[cuda])")
    from tests.simt import stand_in

    path = [str(stand_in.library().parent), os.environ.get("LD_LIBRARY_PATH", "")]
    environment = os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, path))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        str(CASES),
    ]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

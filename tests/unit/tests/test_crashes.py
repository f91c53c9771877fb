"""A process that dies under a test costs that test alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DYING = """
import ctypes, os, pytest, signal

together = pytest.mark.xdist_group("g")

@together
def test_a(): pass
@together
def test_stands_where_no_signal_comes_through():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    ctypes.PyDLL(None).pause()
@together
def test_b(): pass
def test_aborts(): os.abort()
def test_last(): pass
"""
TIMES = "timeout = 0.5\nfaulthandler_timeout = 0.8\nfaulthandler_exit_on_timeout = true"


@pytest.mark.long
def test_the_others_pass(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{TIMES}\n")
    (tmp_path / "test_all.py").write_text(DYING)
    options = "-q -n 1 --dist loadgroup -p tests.crashes -p no:cacheprovider".split()
    run = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    told = subprocess.run(run, capture_output=True, text=True, timeout=60).stdout
    assert "2 failed, 3 passed" in told
    for name in ("test_aborts", "test_stands_where_no_signal_comes_through"):
        assert f"crashed while running 'test_all.py::{name}" in told

"""A process that dies under a test costs that test alone; a file's tests share a process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.crashes import pytest_xdist_make_scheduler

DYING = """
import ctypes, os, signal, time
import pytest

def test_a(): pass
def test_stands_where_no_signal_comes_through():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    ctypes.PyDLL(None).pause()
def test_b(): pass
def test_aborts(): os.abort()
@pytest.mark.timeout(3)
def test_may_last_longer(): time.sleep(1.5)
def test_last(): pass
"""
TIMES = "timeout = 0.5\nfaulthandler_timeout = 0.8\nfaulthandler_exit_on_timeout = true"


@pytest.mark.long
def test_the_others_pass(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{TIMES}\n")
    (tmp_path / "test_all.py").write_text(DYING)
    options = "-q -n 1 --dist loadfile -p tests.crashes -p no:cacheprovider".split()
    run = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    told = subprocess.run(run, capture_output=True, text=True, timeout=60).stdout
    assert "2 failed, 4 passed" in told
    for name in ("test_aborts", "test_stands_where_no_signal_comes_through"):
        assert f"crashed while running 'test_all.py::{name}" in told


class Process:
    """What a scheduler knows of a process: it notes which tests it is sent."""

    shutting_down = False
    gateway = SimpleNamespace(id="a process")

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.sent += numbers

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_process_gets_a_file_at_once() -> None:
    """What a file's tests share is made once, and what they have cached is there for the others."""
    makefile = (Path(__file__).resolve().parents[3] / "Makefile").read_text("utf-8")
    dist = re.search(r"--dist (\w+)", makefile)
    assert dist is not None
    values = {"dist": dist[1], "tx": ["popen"] * 2}
    options = SimpleNamespace(loadscopereorder=False)
    config = SimpleNamespace(getvalue=values.__getitem__, option=options)
    scheduler = pytest_xdist_make_scheduler(cast(pytest.Config, config), None)
    names = [f"tests/test_{file}.py::test[{k}]" for file in "abc" for k in range(5)]
    first, second = processes = [Process(), Process()]
    for process in processes:
        scheduler.add_node(process)
        scheduler.add_node_collection(process, names)
    scheduler.schedule()
    assert first.sent == [0, 1, 2, 3, 4]
    assert second.sent == [5, 6, 7, 8, 9]
    for number in range(3):
        scheduler.mark_test_complete(first, number)
    assert first.sent == [*range(5), *range(10, 15)]  # two are left: it must never wait
    for number in (3, 4):
        scheduler.mark_test_complete(first, number)
    assert [*scheduler.assigned_work[first]] == ["tests/test_c.py"]

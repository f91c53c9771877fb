"""Starts of ranks whose launcher does not end them: who starts them sees it, and ends all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from luminal.runtime.collectives import start
from luminal.runtime.collectives.start import Start

# A launcher that waits for ever, whatever becomes of its ranks: it starts one, in a session of its
# own, and a process whose parent has ended.
HANGS = """
import os, subprocess, sys, time
import luminal_rank

def orphan():
    os.setsid()
    if os.fork():
        time.sleep(0.3)  # in which it is seen
        os._exit(0)
    time.sleep(100)

def rank():
    os.setsid()
    told = luminal_rank.registered()
    print(os.getpid(), flush=True)
    how = sys.stdin.readline()
    if how == "dies\\n":
        os.kill(os.getpid(), 9)
    print(how, end="", file=told, flush=True)

for each in (orphan, rank):
    if os.fork() == 0:
        each()
        os._exit(0)
time.sleep(100)
"""


@pytest.fixture
def started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Start, subprocess.Popen[str]]]:
    monkeypatch.setattr(start, "GRACE", 0.1)
    one = Start(tmp_path)
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-S", "-c", HANGS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | one.variables | {"PYTHONPATH": path}, text=True,
    ) as popen:  # fmt: skip
        one.launcher = popen.pid
        yield one, popen
        one.kill()


def looked_after(one: Start, seconds: float) -> int:
    """How many of its processes there were at most, in so many seconds or until it was ended."""
    end, most = time.monotonic() + seconds, 0
    while time.monotonic() < end and not one.is_ended:
        one.look()
        most = max(most, len(one._begun))
        time.sleep(0.01)
    return most


def left(one: Start) -> list[int]:
    """Those of its processes that have not ended within 5 s."""
    end = time.monotonic() + 5
    while True:
        there = [
            number
            for number, begun in one._begun.items()
            if begun in start.host.beginnings(number).values()
        ]
        if not there or time.monotonic() > end:
            return there
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("how", "status", "killed"), [("dies", 137, 0), ("3", 3, 0), ("-11", 139, 1)]
)
def test_a_launcher_that_hangs(
    how: str, status: int, killed: int, started: tuple[Start, subprocess.Popen[str]]
) -> None:
    """A rank ends, by a signal to who watches it, with a status, or by a signal to itself: all of
    it ends, what is nobody's child too.
    """
    one, popen = started
    assert popen.stdin is not None
    assert popen.stdout is not None
    assert int(popen.stdout.readline()) > 0
    assert looked_after(one, 0.4) == 4, "the launcher, a rank, one that starts another, and that"
    assert not one.is_ended, "all ranks live"
    print(how, file=popen.stdin, flush=True)
    looked_after(one, 5)
    assert one.is_ended
    assert left(one) == []
    assert popen.wait() == -signal.SIGKILL
    assert (one.status, one.killed) == (status, killed)


def test_a_rank_that_ends_in_order(started: tuple[Start, subprocess.Popen[str]]) -> None:
    """Others may go on as long as they like."""
    one, popen = started
    assert popen.stdin is not None
    print("0", file=popen.stdin, flush=True)
    looked_after(one, 0.5)
    assert (one.is_ended, one.status, one.killed) == (False, 0, 0)


def test_a_number_that_another_process_has_got(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as other:
        one = Start(tmp_path)
        one._begun = {other.pid: "0"}  # what had it before
        one.kill()
        assert other.poll() is None
        other.communicate(b"\n")
        assert other.returncode == 0

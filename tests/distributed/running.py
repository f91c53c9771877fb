"""Programs of several MPI ranks, started as users start them, and what is left of them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from luminal.base import config
from luminal.runtime.collectives.mpich import mpiexec, wheel_file

ROOT = Path(__file__).resolve().parents[2]
MARK = "LUMINAL_TEST_RUN"


def needs_mpi() -> pytest.MarkDecorator:
    """Skips tests where the extra `mpi` is not installed."""
    absent = (
        importlib.util.find_spec("mpi4py") is None
        or mpiexec() is None
        or wheel_file("libmpi.so.12") is None
    )
    return pytest.mark.skipif(absent, reason="needs mpi4py and mpich: the extra `mpi`")


class Ended(NamedTuple):
    """How a program of ranks ended: its status, what it wrote, after how many seconds, and what of
    its processes is still there.
    """

    status: int
    out: str
    err: str
    seconds: float
    left: list[int]


class Ranks:
    """A program that runs. Every process it starts has a mark of its own in its environment."""

    def __init__(self, command: list[str], **variables: str) -> None:
        self.mark = uuid.uuid4().hex
        # A line is written at once: of streams without a buffer the parts of ranks' lines mix.
        environment = {
            **config.child_environment(), "LUMINAL_VERIFY": "0", "PYTHONUNBUFFERED": "",
            **variables, MARK: self.mark,
        }  # fmt: skip
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self.start = time.monotonic()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
            start_new_session=True, bufsize=0,
        )  # fmt: skip

    def line(self, text: str) -> str:
        """Reads standard output up to a line that has `text`, and no further: what a buffer had
        read ahead would be lost to `end`.
        """
        assert self.process.stdout is not None
        while line := self.process.stdout.readline().decode():
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r}; {self.process.communicate()[1]}")

    def shared(self) -> list[Path]:
        """The files of shared memory that processes of the program have mapped by MPICH and that
        others could open.
        """
        names: set[str] = set()
        for number in self.processes():
            try:
                maps = Path(f"/proc/{number}/maps").read_text()
            except OSError:  # it has ended
                continue
            names |= set(re.findall(r"/dev/shm/mpich_shm_\w+", maps))
        return [Path(name) for name in names if Path(name).exists()]

    def end(self, seconds: float = 120, grace: float = 10) -> Ended:
        """Waits for the program to end, then `grace` seconds for the last of its processes."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        finally:
            if self.process.poll() is None:
                self.kill()
        took = time.monotonic() - self.start
        until = time.monotonic() + grace
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        if left:
            self.kill()
        return Ended(self.process.returncode, out.decode(), err.decode(), took, left)

    def processes(self) -> list[int]:
        """The numbers of all processes that have the mark, zombies not counted."""
        mark = f"{MARK}={self.mark}".encode()
        marked = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if mark in (folder / "environ").read_bytes():
                        marked.append(int(folder.name))
                except OSError:  # it has ended, or is another user's
                    continue
        return marked

    def kill(self) -> None:
        """Ends what is left, after a failure."""
        for process in self.processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue


def under_mpiexec(count: int, *program: str, **variables: str) -> Ranks:
    """Starts a Python program on several ranks by mpiexec alone."""
    return Ranks([str(mpiexec()), "-n", str(count), sys.executable, *program], **variables)


def launched_models(ranks: int, asked: list[str], **variables: str) -> dict[str, Any]:
    """What all ranks of tests.distributed.mesh_models agree on, started by `luminal launch`."""
    command = [sys.executable, "-m", "luminal", "launch", "-n", str(ranks)]
    ended = Ranks([*command, "-m", "tests.distributed.mesh_models", *asked], **variables).end(300)
    assert ended.status == 0, ended.err
    lines = [line.partition("digests ")[2] for line in ended.out.splitlines() if "digests " in line]
    rows = [json.loads(line) for line in lines]
    assert sorted(row.pop("rank") for row in rows) == list(range(ranks)), ended.out
    assert all(row == rows[0] for row in rows)
    return dict(rows[0])

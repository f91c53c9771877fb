"""Starts the ranks of a program by mpiexec, and ends them: `luminal launch`."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from luminal.base import config, host, installation
from luminal.base.errors import InputError
from luminal.runtime.collectives.membership import Fits
from luminal.runtime.collectives.mpich import mpiexec
from luminal.runtime.collectives.start import KILLED, LOOKS, Start
from luminal_rank import die_with_parent

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ORDERLY = 5.0  # seconds for mpiexec to end the ranks before it is killed


RANK = (sys.executable, "-m", "luminal_rank")
"""What mpiexec starts, before a program's own words."""
MOST_A_CORE = 64
"""Ranks that a launch starts for each core of this machine: more are a slip of the hand."""


class Ranks(NamedTuple):
    """How many ranks a program may have: at least and at most."""

    least: int
    most: int

    @staticmethod
    def parse(text: str) -> Ranks:
        """Reads "4" or "2:4"."""
        least, _, most = text.partition(":")
        try:
            ranks = Ranks(int(least), int(most or least))
        except ValueError:
            ranks = Ranks(0, 0)
        if not 1 <= ranks.least <= ranks.most:
            raise InputError(f"-n {text}: takes a count of ranks >= 1, or least:most as 2:4")
        most_here = MOST_A_CORE * len(host.core_ids())
        if ranks.least > most_here:
            raise InputError(
                f"-n {text}: {ranks.least} ranks of this machine's {len(host.core_ids())} cores; "
                f"it starts at most {most_here}: start more by srun or mpiexec over several"
            )
        return ranks

    def first(self) -> int:
        """How many to start: where it may be fewer, at most one for each core."""
        return max(self.least, min(self.most, len(host.core_ids())))

    def near(self, count: int, fits: Fits, unfit: Collection[int] = ()) -> int | None:
        """How many ranks to start where there is room for `count`: as many as divide the batches,
        and none of those that were refused. None where no number is left.
        """
        numbers = range(self.least, self.most + 1)
        takes = [n for n in numbers if fits.takes(n) and n not in unfit]
        below = [n for n in takes if n <= count]
        return max(below) if below else min(takes, default=None)

    def __str__(self) -> str:
        """The option that says so."""
        return f"-n {self.least}" + (f":{self.most}" if self.most > self.least else "")


class Ended(NamedTuple):
    """How a program has ended: its exit status, and how many of its ranks signals have ended."""

    status: int
    killed: int = 0


def run(
    count: int, program: Sequence[str], signals: Signals, folder: Path,
    variables: dict[str, str] | None = None, look: Callable[[], None] | None = None,
    numbered: bool = True,
) -> Ended:  # fmt: skip
    """Runs a program once, a script or ("-m", module) and its arguments, and looks after something
    meanwhile. The exit status is that of the rank that failed, or 130 after Ctrl-C; if it is not 0
    none of its processes stays.

    folder: for what this process and those who watch the ranks tell one another.
    numbered: lines of output begin with the number of their rank, where mpiexec can do that.
    """
    if signals.first is not None:
        return Ended(128 + signals.first)
    command = [*_mpiexec(count, numbered), *RANK]
    start = Start(folder)
    process = subprocess.Popen(
        [*command, *program],
        env=config.child_environment() | start.variables | (variables or {}),
        preexec_fn=lambda: die_with_parent(signal.SIGTERM),
    )
    start.launcher, status = process.pid, 1
    try:
        status = _watched(process, signals, start, look)
    finally:
        if status:
            start.kill()
            process.wait()
    return Ended(status, start.killed)


def _watched(
    process: subprocess.Popen[bytes], signals: Signals, start: Start,
    look: Callable[[], None] | None,
) -> int:  # fmt: skip
    """Waits for mpiexec; once a signal has come, ends it, first in order, then by force."""
    while (status := _status_within(process, LOOKS)) is None:
        start.look()
        if signals.first is None:
            if look is not None:
                look()
            continue
        # Of Ctrl-C in a terminal it has heard too, and is at it.
        if _status_within(process, 0.5) is None:
            process.terminate()
        if _status_within(process, ORDERLY) is None:
            start.kill()
        process.wait()
        return 128 + signals.first
    if signals.first is not None:  # mpiexec was faster
        return 128 + signals.first
    return exit_status(status, start)


def exit_status(code: int, start: Start) -> int:
    """How ranks ended, as shells say it: 128 and the number of the signal that ended them.

    code: what their launcher has ended with.
    """
    if start.is_ended:
        return start.status or KILLED
    # Of a rank that was killed, hydra says 9 or 137, as it goes.
    code = KILLED if code == signal.SIGKILL else code
    return code if code >= 0 else 128 - code


def _status_within(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


class Signals:
    """Inside of the block signals that end a process are noted, and not more; None: not one yet."""

    first: int | None = None

    def __enter__(self) -> Signals:
        self._before = [signal.signal(number, self._note) for number in SIGNALS]
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.first = self.first or number

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(SIGNALS, self._before, strict=True):
            signal.signal(number, handler)


def _mpiexec(count: int, numbered: bool) -> list[str]:
    """mpiexec for so many ranks, whose output has their numbers before each line where it can, if
    that is wanted.
    """
    path = mpiexec()
    if path is None:
        raise InputError(f"luminal launch: there is no mpiexec; {installation.hint('mpi')}")
    about = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    if "HYDRA" in about or "Intel" in about:
        prefix = ["-prepend-rank"]
    elif "Open MPI" in about or "OpenRTE" in about or "PRRTE" in about:
        prefix = ["--tag-output"]
    else:
        prefix = []
    return [str(path), *(prefix if numbered else ()), "-n", str(count)]

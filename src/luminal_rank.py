"""A rank of a program, as `luminal launch` starts it: `python -m luminal_rank SCRIPT ARGS`.

This process only watches another one, which runs the program: one that is killed, or out of memory,
cannot say itself what it was at. It stands outside of the package, since to import any part of that
takes half a second and memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import signal
import sys
import time
from typing import TextIO

NOTE_BYTES = 512
"""A page that both processes have, in which the rank notes what it does."""

SHOWN = 0.2  # seconds for what is written last to reach the launcher, which then ends all

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Runs the program in a process of its own and ends as that does."""
    told = registered()
    note = mmap.mmap(-1, NOTE_BYTES)
    watcher = os.getpid()
    rank = os.fork()
    if rank == 0:
        die_with_parent(parent=watcher)
        from luminal.runtime.collectives.started import run

        run(sys.argv[1:], note)
        return
    _, status = os.waitpid(rank, 0)
    code = os.waitstatus_to_exitcode(status)
    if told is not None:
        with contextlib.suppress(OSError):  # the launcher and its folder are gone
            print(code, file=told, flush=True)
    if code < 0:
        what = note[:].rstrip(b"\0").decode(errors="replace") or "a rank that has not come up"
        print(
            f"luminal: {what}: process {rank} was killed by {signal.Signals(-code).name}",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        time.sleep(SHOWN)
        if code == -signal.SIGKILL:
            # Before MPI has come up, MPICH ends the others for a signal, and for no status.
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(128 - code)
    os._exit(code)


def registered() -> TextIO | None:
    """The file in which the launcher looks for how this rank has ended, locked while this process
    lives; None where there is no such launcher on this machine.
    """
    folder = os.environ.pop("LUMINAL_RANKS", None)  # what the rank starts is no part of the program
    if folder is None:
        return None
    with contextlib.suppress(OSError):
        file = open(f"{folder}/.{os.getpid()}", "x")  # noqa: SIM115  # it stays open
        fcntl.lockf(file, fcntl.LOCK_EX)  # which a fork does not have too, as it would flock's
        os.rename(file.name, f"{folder}/{os.getpid()}")  # so that nobody sees it without the lock
        return file
    return None


def die_with_parent(number: signal.Signals = signal.SIGKILL, parent: int | None = None) -> None:
    """From now on this process gets a signal when its parent ends; Linux only.

    Of the parent, it is the thread that counts which started this process: it must last.

    parent: its number, where it may have ended before.
    """
    if sys.platform == "linux":
        parent = parent or os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it has ended meanwhile
            os.kill(os.getpid(), number)


if __name__ == "__main__":
    main()

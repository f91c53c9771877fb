"""Processes that end with the one that started them, so that none is left where it was killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """From now on this process gets a signal when its parent ends; Linux only.

    Of the parent, it is the thread that counts which started this process: it must last.
    """
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it has ended meanwhile
            os.kill(os.getpid(), number)

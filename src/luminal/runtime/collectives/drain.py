"""What a process writes last, before all of it is ended: it must have been read."""

from __future__ import annotations

import fcntl
import sys
import termios
import time
from array import array
from contextlib import suppress
from typing import TextIO

MOST = 1.0  # seconds: nobody may read at all
PASSED_ON = 0.05  # seconds for a launcher to hand on what it has read


def drain(message: str) -> None:
    """Writes a message to stderr, and waits until both streams were read, where they are pipes.

    A launcher that hears of an abort ends everything at once: it would not read what is left.
    """
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    with suppress(OSError, ValueError):  # it is closed
        if message:
            print(message, file=sys.stderr)
    end = time.monotonic() + MOST
    for stream in streams:
        with suppress(OSError, ValueError):
            stream.flush()
            while _unread(stream) and time.monotonic() < end:
                time.sleep(0.001)
    time.sleep(PASSED_ON)


def _unread(stream: TextIO) -> int:
    """How many bytes lie in the pipe of a stream; OSError where it is none."""
    count = array("i", [0])
    fcntl.ioctl(stream.fileno(), termios.FIONREAD, count)
    return count[0]

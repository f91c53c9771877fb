"""Messages through the pipes between this process and those that it started: bytes and a length."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from contextlib import suppress
from typing import IO

HEADER = struct.Struct("<q")


def send(stream: IO[bytes], data: bytes) -> None:
    """Writes one message. Raises OSError if the other side has gone."""
    stream.write(HEADER.pack(len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """Reads one message; EOFError if the other side has gone."""
    return _exactly(stream, HEADER.unpack(_exactly(stream, HEADER.size))[0])


def answers() -> IO[bytes]:
    """The stream in which a started process answers: its standard output, which then is what it has
    for errors, as what compilers and kernels print is no answer.
    """
    stream = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return stream


def close(process: subprocess.Popen[bytes]) -> None:
    """Waits for a process to end, and closes the pipes to it."""
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what it still held cannot be sent any more
                pipe.close()


def _exactly(stream: IO[bytes], count: int) -> bytes:
    """The next `count` bytes of the stream; EOFError if fewer come."""
    parts = []
    while count:
        part = stream.read(count)
        if not part:
            raise EOFError("the other process has gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)

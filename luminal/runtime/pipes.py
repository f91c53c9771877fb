"""Messages through the pipes between this process and those that it started: bytes and a length."""

from __future__ import annotations

import struct
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


def _exactly(stream: IO[bytes], count: int) -> bytes:
    """That many bytes; EOFError if fewer come."""
    parts = []
    while count:
        part = stream.read(count)
        if not part:
            raise EOFError("the other process has gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)

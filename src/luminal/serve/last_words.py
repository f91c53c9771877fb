"""What the processes of a group say on their standard error, and which of it says why they end."""

from __future__ import annotations

import re
import signal
import sys
from asyncio import StreamReader
from contextlib import suppress

BYTES = 1 << 16
# What a rank's watcher says of a rank that was killed, and a rank of what ends all of them. Other
# texts may name files of the server, or hold what another client sent.
_KILLED = re.compile(r"luminal: (rank \d+|a rank that has not come up)\b.* was killed by (SIG\w+)")
_ENDS_ALL = re.compile(
    r"luminal: rank \d+ of \d+ ends all: (a step failed: .*|(?:\w+: )?rank \d+: .*)"
)


async def handed_on(stream: StreamReader) -> str:
    """Writes a group's lines to this process's standard error until they end.

    Returns the first that says why the group dies, in words for clients; "" where none does.
    """
    why, rest = "", b""
    while part := await stream.read(BYTES):
        lines, newline, rest = (rest + part).rpartition(b"\n")  # whole ones, among this process's
        _write(lines + newline)
        said = map(reason_in, lines.decode(errors="replace").splitlines())
        why = why or next(filter(None, said), "")
    _write(rest)
    return why


def _write(data: bytes) -> None:
    with suppress(OSError, ValueError):  # nobody reads: the ranks must not wait for that
        sys.stderr.write(data.decode(errors="replace"))
        sys.stderr.flush()


def reason_in(line: str) -> str:
    """Why a group dies, if a line of it says so, else ""."""
    if match := _KILLED.search(line):
        return f"{match[1]} was killed by {match[2]}"
    match = _ENDS_ALL.search(line)
    return match[1] if match else ""


def reason_of(status: int) -> str:
    """What an exit status, as shells say it, tells of why."""
    with suppress(ValueError):
        return f"killed by {signal.Signals(status - 128).name}"
    return f"status {status}"

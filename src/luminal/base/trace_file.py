"""The file that LUMINAL_TRACE names: what this process does, a line of JSON for each thing.

Each line is one write to the end of the file, so that what was written stays when the process is
killed, and processes that share a file (ranks, workers of a search, forked children) do not mix
their lines. Every line has its `pid`; the first one of a process says who it is and what its clock
said at which time of the world. docs/inspecting.md lists the lines.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from luminal.base import config, forks, installation
from luminal.base.errors import InputError

FORMAT = 1
BEGIN = b'{"pid":'
"""With this every trace begins, and no file that a user could miss."""
LIMIT = 128 << 20
"""Bytes that a process writes at most. Each time that half of what is left is full, a fourth of the
runs is noted from there on, with the number and the time of those between: a long process is there
as a whole."""

about: dict[str, str] = {}
"""What else is told of this process: which rank it is."""


class TraceFile:
    """The open file of this process. Raises InputError where it cannot be written."""

    def __init__(self, path: Path) -> None:
        self.every = 1  # of so many runs one has a line
        self._path, self._pid, self._programs = path, 0, 0
        self._written, self._thin_at = 0, LIMIT // 2
        self._threads: set[int] = set()
        refuse_another("LUMINAL_TRACE=", path)
        try:
            self._file: int | None = _opened(path)
        except OSError as error:
            raise InputError(
                f"LUMINAL_TRACE={path}: cannot be written: {error.strerror}; name a file in a "
                "folder that is there"
            ) from None

    def new_program(self) -> int:
        """A number for a program of this process."""
        self._programs += 1
        return self._programs

    def write(self, **facts: Any) -> None:
        """A line with these facts, those of this thread."""
        pid = os.getpid()
        if pid != self._pid:  # the first line, or that of a forked child
            self._introduce(pid)
        thread = threading.get_native_id()
        if thread not in self._threads:
            self._threads.add(thread)
            self._put({"pid": pid, "thread": thread, "name": threading.current_thread().name})
        self._put({"pid": pid, "thread": thread, **facts})

    def _introduce(self, pid: int) -> None:
        self._pid, self._threads = pid, set()
        self._written, self._thin_at, self.every = 0, LIMIT // 2, 1
        self._put(
            {
                "pid": pid,
                "format": FORMAT,
                "parent": os.getppid(),
                "command": sys.orig_argv,
                "luminal": installation.VERSION,
                "host": platform.node(),
                "wall": time.time_ns(),
                "clock": time.perf_counter_ns(),
                **about,
            }
        )

    def _put(self, facts: dict[str, Any]) -> None:
        if self._file is None:
            return
        line = json.dumps(facts, separators=(",", ":")).encode() + b"\n"
        self._written += len(line)
        if self._written > LIMIT:
            line = json.dumps({"pid": self._pid, "full": LIMIT}).encode() + b"\n"
        while self._written > self._thin_at and self.every < 1 << 30:
            self.every *= 4
            self._thin_at = LIMIT - (LIMIT - self._thin_at) // 2
        try:
            is_whole = os.write(self._file, line) == len(line)
        except OSError as error:
            is_whole = False
            print(f"luminal: LUMINAL_TRACE={self._path}: {error.strerror}", file=sys.stderr)
        if not is_whole or self._written > LIMIT:  # the disk is full, or the trace
            file, self._file = self._file, None
            os.close(file)


def refuse_another(option: str, path: Path) -> None:
    """Raises InputError for a file that is no trace: whoever meant another name would lose it."""
    begin = b""
    with suppress(OSError):  # what cannot be read is told by the opening
        if path.is_file():
            with path.open("rb") as file:
                begin = file.read(len(BEGIN))
    if begin and begin != BEGIN:
        raise InputError(
            f"{option}{path}: this file is no trace, and is kept as it is; name another, or "
            "remove it"
        )


def _opened(path: Path) -> int:
    """The file, to write at its end; an older trace that nobody is writing is gone."""
    if sys.platform == "win32":
        with suppress(OSError):  # who has it open keeps it
            path.unlink()
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_BINARY, 0o666)
    else:
        import fcntl

        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        with suppress(OSError):  # others hold a lock as they write; a pipe is not to be emptied
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH)
    return file


_open: dict[Path, TraceFile] = {}
_lock = forks.lock()


def current() -> TraceFile | None:
    """The file that is written now; None where LUMINAL_TRACE is not set."""
    path = config.get("LUMINAL_TRACE")
    if path is None:
        return None
    with _lock:
        if path not in _open:
            _open[path] = TraceFile(path)
        return _open[path]

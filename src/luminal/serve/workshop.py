"""What is computed for a request outside of the engine, where it may take long: in processes that
run behind all else, have limits of time and memory, and give back what they took.

Grammars are made and followed there, and bodies of more than a few KiB are read: of their JSON,
templates and tokenizers nothing is known but that they end. See `workshop_process`.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from luminal.base import config
from luminal.base.errors import LuminalError
from luminal.frontend.handle import Array
from luminal.models.constraints import ConstraintError
from luminal.serve.words import Words

CALL_SECONDS = 20.0  # of one call, beside those of its request


class Gone(LuminalError):
    """The worker has ended: it took too much memory or time, or its request is over."""


class Workshop:
    """Starts workers. The process that forks them begins with the first one, or with `start`."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket

    def start(self) -> None:
        """Has the process begin, if it does not run."""
        with self._lock:
            # It may have been killed for memory; the next request starts another one and does not
            # fail for it.
            if self._process is None or self._process.poll() is not None:
                self._begin()

    def _begin(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "luminal.serve.workshop_process", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # what libraries say as they run out of memory
                pass_fds=(theirs.fileno(),),
                env=config.child_environment(),
            )
        assert self._process.stdin is not None
        with self._process.stdin as stream:
            pickle.dump(self._words, stream)

    def worker(self) -> Worker:
        """A process for one request."""
        self.start()
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            socket.send_fds(self._control, [b"w"], [theirs.fileno()])
        return Worker(ours)

    def stop(self) -> None:
        """Ends the process; workers end with their requests."""
        with self._lock:
            if self._process is not None:
                self._control.close()
                self._process.kill()  # it may be at its beginning still
                self._process.wait()
                self._process = None


class Worker:
    """A process as its request sees it. One call runs at a time."""

    def __init__(self, local: socket.socket) -> None:
        self._socket, self._connection = local, Connection(os.dup(local.fileno()))
        self._lock = threading.Lock()

    def call(self, name: str, *arguments: Any) -> Any:
        """What the process makes of it. Raises LuminalError, and Gone where there is none."""
        end = time.monotonic() + CALL_SECONDS
        with self._lock:
            try:
                self._connection.send((name, arguments))
                if not self._connection.poll(max(0.0, end - time.monotonic())):
                    raise Gone(f"it takes more than {CALL_SECONDS:g} s; ask for less at once")
                answer = self._connection.recv()
            except (EOFError, OSError):
                raise Gone("it takes too much memory; ask for less at once") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> None:
        """Ends the process and whatever waits for it."""
        with suppress(OSError):
            # First of all and without the lock: a call that waits for its answer holds it, and this
            # is what ends the wait.
            self._socket.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._connection.close()
            self._socket.close()


def matchers(worker: Worker, schema: str, count: int) -> list[RemoteMatcher]:
    """What follows `count` texts under a JSON schema in a worker. Raises ConstraintError."""
    states: Sequence[tuple[bytes, bool]] = _called(worker, "follow", schema, count)
    return [RemoteMatcher(worker, number, *state) for number, state in enumerate(states)]


class RemoteMatcher:
    """Follows one text; see `luminal.models.text.Matcher`."""

    def __init__(self, worker: Worker, number: int, bits: bytes, complete: bool) -> None:
        self._worker, self._number = worker, number
        self._bits, self.complete = bits, complete

    def allowed(self) -> Array:
        """A bit for every token id, uint32."""
        return np.frombuffer(self._bits, np.uint32)

    def accept(self, token: int) -> None:
        """Takes the token that came. Raises ConstraintError."""
        self._bits, self.complete = _called(self._worker, "accept", self._number, token)

    def ahead(self, tokens: Sequence[int]) -> list[Array]:
        """See `ForesightMatcher`. Raises ConstraintError."""
        masks: list[bytes] = _called(self._worker, "ahead", self._number, [*tokens])
        return [np.frombuffer(mask, np.uint32) for mask in masks]


def _called(worker: Worker, *call: Any) -> Any:
    try:
        return worker.call(*call)
    except Gone as error:
        raise ConstraintError(f"json_schema: {error}") from None

"""The processes of a workshop: one that has read the model's words, and its copies that work.

The first one does nothing but fork: a copy has the tokenizer at once, works for one request, and
takes what it used of memory with it when it ends.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from luminal.base.errors import InputError, LuminalError
from luminal.models.constraints import GrammarMatcher, token_table
from luminal.serve.orders import Limits
from luminal.serve.reading import Asked, read
from luminal.serve.words import Words

NICE = {"look": 5}
"""How far steps of the engine go before what is computed here: before all but images, which take a
known time, and whose requests would have none left beside an engine that is never idle.
"""
MEMORY = 512 << 20  # bytes that a worker may take beyond what it begins with
CPU_SECONDS = 600  # also where a library lets no other thread end the process


class Worker:
    """What a request may ask of its process."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._matchers: list[GrammarMatcher] = []

    def read(self, path: str, body: bytes, limits: Limits) -> Asked:
        """What a body asks for. Raises ApiError."""
        return read(path, body, self._words, limits)

    look = read
    """The same of a body that may have images."""

    def follow(self, schema: str, count: int) -> list[tuple[bytes, bool]]:
        """Begins `count` texts under a schema: for each what `accept` gives."""
        self._matchers = self._words.matchers(schema, count)
        return [_state(matcher) for matcher in self._matchers]

    def accept(self, number: int, token: int) -> tuple[bytes, bool]:
        """The tokens that may follow in a text, a bit each, and whether it is complete."""
        self._matchers[number].accept(token)
        return _state(self._matchers[number])

    def ahead(self, number: int, tokens: Sequence[int]) -> list[bytes]:
        """The tokens that may follow after each of these in a text, a bit each; see
        `ForesightMatcher`.
        """
        return [mask.tobytes() for mask in self._matchers[number].ahead(tokens)]


def _state(matcher: GrammarMatcher) -> tuple[bytes, bool]:
    complete = matcher.complete
    return b"" if complete else matcher.allowed().tobytes(), complete


def work(words: Words, connection: Connection) -> None:
    """Answers calls until the other side hangs up, which ends even what is being computed."""
    calls: SimpleQueue[Any] = SimpleQueue()

    def listen() -> None:
        with suppress(EOFError, OSError):
            while True:
                calls.put(connection.recv())
        # Not by an exception: a library that computes in the main thread would go on until it comes
        # back to Python.
        os._exit(0)

    _limit()
    threading.Thread(target=listen, daemon=True).start()
    worker = Worker(words)
    while True:
        name, arguments = calls.get()
        os.nice(max(0, NICE.get(name, 19) - os.nice(0)))
        try:
            answer: Any = getattr(worker, name)(*arguments)
        except LuminalError as error:
            answer = error
        except MemoryError:
            answer = InputError("it takes too much memory; ask for less at once")
        except Exception:
            answer = RuntimeError(traceback.format_exc())
        connection.send(answer)


def _limit() -> None:
    """No more memory or time is taken; where a library cannot do without it the process ends."""
    with suppress(OSError):  # no Linux
        # Counted from what the copy was born with, as a tokenizer's tables may be larger than all
        # that a request should take.
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    # A worker that runs into its limit is no bug to be examined, and its image holds the request's
    # text.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Reads the words, then forks for each connection that comes, until its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that have ended
    control = socket.socket(fileno=int(sys.argv[1]))
    words: Words = pickle.load(sys.stdin.buffer)
    with suppress(LuminalError):  # whoever asks for a constraint is told why there can be none
        token_table(words.tokenizer)
    with suppress(LuminalError):  # what reads images is imported once, for all copies
        words.image(b"", 1)
    # The collector writes into every object that it visits, and what is written to is copied for
    # each child.
    gc.freeze()
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        if os.fork() == 0:
            control.close()
            try:
                work(words, Connection(descriptors[0]))
            finally:
                os._exit(1)
        os.close(descriptors[0])


if __name__ == "__main__":
    main()

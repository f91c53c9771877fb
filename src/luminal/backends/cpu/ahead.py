"""Kernels compiled by a thread and by other processes while the caller places the next ones.

LLVM works for one thread of a process at a time: what one thread cannot keep up with is for other
processes. These helpers take the newest of the kernels that wait, the thread has the oldest, and so
they meet. A helper that cannot be started or dies is only missed: the thread does its share. It is
given nothing before it is ready, and batches grow shorter towards the end, so the caller waits for
none long.
"""

from __future__ import annotations

import pickle
import selectors
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from luminal.backends.cpu.beside import Beside, Key
from luminal.base import forks
from luminal.base.errors import LuminalError
from luminal.base.host import core_ids
from luminal.codegen.llvm_target import LlvmTarget
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.pipes import close, receive, send

Compile = Callable[[Kernel, LlvmTarget], bytes]

LARGE = 500  # operations of a graph for which a helper is started before any kernel is placed,
SPARE = 3  # from this many cores on: the caller and its thread have two
MANY = 48  # kernels that wait from which a helper, which starts in 0.3 s, is worth its while
BATCH = 8  # kernels a helper is given at a time at most: 100 ms of work
BATCHES = 2  # that a helper has: it goes on with the next while its answer waits to be read
MOST_HELPERS = 4
PIPE_BYTES = 1 << 20  # a batch and its answer fit in: neither side waits for the other to read


# For each thread on its own: two threads that compile must not wait for each other's kernels.
class Ahead(threading.local):
    """The kernels that a thread has announced to the compilers and not taken yet."""

    def __init__(self) -> None:
        self._waiting: dict[Key, Kernel] = {}
        self._made: dict[Key, bytes] = {}
        self._helpers: list[Helper] = []
        cores = len(core_ids())
        self._beside = Beside() if cores > 1 else None
        # Windows cannot say whether a pipe has something to read, so helpers would be waited for.
        self._may_start = 0 if sys.platform == "win32" else min(cores - 1, MOST_HELPERS)
        self._has_spare = cores >= SPARE

    def expect(self, operations: int) -> None:
        """Starts a helper for a graph of many operations: it is ready when kernels are placed."""
        is_large = operations >= LARGE and self._has_spare
        if is_large and not self._helpers and self._may_start:
            self._start()

    def begin(self, key: Key, kernel: Kernel, is_made: Callable[[Key], bool]) -> None:
        """Lets a kernel be compiled. `is_made`: it needs not be."""
        # On a single core a second thread only takes turns with the caller.
        if self._beside is None or self._beside.has(key) or is_made(key):
            return
        self._waiting[key] = kernel
        if len(self._waiting) >= MANY and len(self._helpers) < self._may_start:
            self._start()
        self._feed()

    def take(self, key: Key) -> bytes | None:
        """The object code of a kernel; None where the caller has to make it."""
        for helper in [*self._helpers]:
            while helper.has(key):
                self._collect(helper)
        kernel = self._waiting.pop(key, None)
        if self._beside is not None:
            if kernel is not None:
                self._beside.give(key, kernel)
            self._feed()
            code = self._beside.take(key)
            if code is not None:
                self._made[key] = code
        self._rest()
        return self._made.pop(key, None)

    def _start(self) -> None:
        try:
            self._helpers.append(Helper())
        except OSError:
            self._may_start = 0

    # A machine that starts no process now (out of memory, or forbidden) will not a moment later,
    # and each try costs time.
    def _feed(self) -> None:
        """Takes what helpers have finished and gives them more, a share of what waits."""
        while self._beside is not None and self._waiting and self._beside.has_room():
            oldest = next(iter(self._waiting))
            self._beside.give(oldest, self._waiting.pop(oldest))
        for helper in [*self._helpers]:
            while helper in self._helpers and helper.batches and helper.has_answered():
                self._collect(helper)
            while helper in self._helpers and self._waiting and helper.has_room():
                # A fraction of what is left each time, as in guided scheduling: large batches
                # first, small ones at the end, so that all end together.
                share = len(self._waiting) // (2 * BATCHES * (len(self._helpers) + 1))
                some = [self._waiting.popitem() for _ in range(min(BATCH, max(share, 1)))]
                if not helper.send(dict(some)):
                    self._lose(helper)

    def _collect(self, helper: Helper) -> None:
        """Waits for a helper's answer to the oldest of its batches."""
        # The oldest batch first: a pipe has an order, and helpers answer in the order of their
        # questions.
        answer = helper.answer()
        if answer is None:
            self._lose(helper)
        else:
            compiled = zip(helper.batches.popleft(), answer, strict=True)
            self._made.update({key: code for key, code in compiled if code is not None})

    def _lose(self, helper: Helper) -> None:
        self._helpers.remove(helper)
        self._may_start = 0
        while helper.batches:
            # What the helper had is not lost: the thread makes it.
            self._waiting |= helper.batches.pop()
        helper.end()

    def _rest(self) -> None:
        """Ends the helpers and the thread once nothing waits any more."""
        if not self._waiting and not any(helper.batches for helper in self._helpers):
            if self._beside is not None:
                self._beside.end()
            while self._helpers:
                self._helpers.pop().end()


class Helper:
    """A process that compiles batches of kernels. Raises OSError where none can be started."""

    def __init__(self) -> None:
        self.batches: deque[dict[Key, Kernel]] = deque()  # oldest first
        self._is_ready = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "luminal.backends.cpu.ahead_helper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # With the usual 64 KiB both sides could wait for each other, each in the middle of a
            # write.
            pipesize=PIPE_BYTES,
        )
        # A thread may end before it has taken all that it announced: another one has compiled the
        # rest. It holds nothing that must be saved: what it made and was not asked for is compiled
        # again when it is wanted.
        self.end = weakref.finalize(self, _ended, self._process)

    def has_room(self) -> bool:
        """Can the helper be given a batch now?"""
        if not self._is_ready and self.has_answered():
            assert self._process.stdout is not None
            with suppress(EOFError, OSError):  # one that has gone is met when it is sent something
                receive(self._process.stdout)
            self._is_ready = True
        return self._is_ready and len(self.batches) < BATCHES

    def has(self, key: Key) -> bool:
        return any(key in batch for batch in self.batches)

    def send(self, batch: dict[Key, Kernel]) -> bool:
        """Hands over a batch; False if the process is gone."""
        assert self._process.stdin is not None
        self.batches.append(batch)
        try:
            kernels = [(target, kernel) for (_, target), kernel in batch.items()]
            send(self._process.stdin, pickle.dumps(kernels))
        except OSError:
            return False
        return True

    def has_answered(self) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
            return bool(selector.select(0))

    def answer(self) -> list[bytes | None] | None:
        """The object code of the oldest batch, None for a kernel that it could not compile; waits
        for it. None if the process is gone.
        """
        assert self._process.stdout is not None
        try:
            codes: list[bytes | None] = pickle.loads(receive(self._process.stdout))
        except (EOFError, OSError, pickle.UnpicklingError):
            return None
        return codes


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    close(process)


def serve(requests: IO[bytes], answers: IO[bytes], compile_: Compile) -> None:
    """Says that it is ready, and answers batches until there are no more."""
    send(answers, b"")
    while True:
        try:
            batch = pickle.loads(receive(requests))
        except EOFError:
            return
        codes: list[bytes | None] = []
        for target, kernel in batch:
            try:
                codes.append(compile_(kernel, target))
            except LuminalError:  # the caller meets it as well, and says so
                codes.append(None)
        send(answers, pickle.dumps(codes))


ahead = Ahead()


def _begin_anew() -> None:
    """A forked child shares no helpers with its parent."""
    global ahead
    ahead = Ahead()


forks.on_fork(_begin_anew)

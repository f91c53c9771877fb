"""Kernels compiled by a thread of this process while the caller places and renders the next ones.

LLVM runs without Python's lock, so it and the rest of a compile take two cores. The thread asks for
that lock between LLVM's calls, and a thread that computes keeps it for 5 ms by default, a quarter
of what a kernel takes: while there is work, turns are short.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from luminal.base import forks, tracing
from luminal.base.errors import LuminalError
from luminal.codegen.llvm_target import LlvmTarget
from luminal.kernel.tile_ir import Kernel

Key = tuple[str, LlvmTarget]
"""A kernel's canonical text, and what it is compiled for."""

DEPTH = 3  # kernels that wait for the thread at most: the others are for other processes
TURN_SECONDS = 1e-4


class Beside:
    """A thread that compiles kernels one after the other; it begins with the first."""

    def __init__(self) -> None:
        self._texts: SimpleQueue[tuple[Key, str] | None] = SimpleQueue()
        self._codes: SimpleQueue[tuple[Key, bytes | None]] = SimpleQueue()
        self._given: set[Key] = set()
        self._made: dict[Key, bytes | None] = {}
        self._thread: threading.Thread | None = None
        # Who holds this may end, as a thread does, before it has taken all.
        weakref.finalize(self, self._texts.put, None).atexit = False

    def has(self, key: Key) -> bool:
        """Was the thread given this kernel, and its code not taken yet?"""
        return key in self._given or key in self._made

    def has_room(self) -> bool:
        """Would the thread come to another kernel soon?"""
        self._collect()
        return len(self._given) < DEPTH

    def give(self, key: Key, kernel: Kernel) -> None:
        """Renders a kernel, and lets the thread compile it."""
        from luminal.codegen.llvm import render

        try:
            with tracing.span("render"):
                ir_text = render(kernel, key[1])
        except LuminalError:  # the caller meets it as well, and says so
            return
        self._given.add(key)
        # The text is rendered here, by the caller's thread: rendering is Python and would only
        # fight for its lock, LLVM is not.
        self._texts.put((key, ir_text))
        if self._thread is None:
            self._thread = threading.Thread(
                # The thread gets the queues and not this object, which could otherwise not be
                # collected while the thread waits.
                target=_work,
                args=(self._texts, self._codes),
                name="luminal-compile",
                daemon=True,
            )
            self._thread.start()

    def take(self, key: Key) -> bytes | None:
        """A kernel's code; waits for it. None if it was not given, or could not be compiled."""
        with tracing.span("compile"):
            while key in self._given:
                self._note(*self._codes.get())
        return self._made.pop(key, None)

    def end(self) -> None:
        """Lets the thread end once it has nothing left."""
        if self._thread is not None:
            self._texts.put(None)
            self._thread = None

    def _collect(self) -> None:
        while not self._codes.empty():
            self._note(*self._codes.get())

    def _note(self, key: Key, code: bytes | None) -> None:
        self._given.discard(key)
        self._made[key] = code


def _work(
    texts: SimpleQueue[tuple[Key, str] | None], codes: SimpleQueue[tuple[Key, bytes | None]]
) -> None:
    """Compiles texts until there is None. `texts` and `codes` are all that the thread holds."""
    text = texts.get()
    while text is not None:
        with _short_turns():
            try:
                while text is not None:
                    codes.put((text[0], _compiled(*text)))
                    text = texts.get_nowait()
            except Empty:
                pass
            else:
                return
        text = texts.get()


def _compiled(key: Key, ir_text: str) -> bytes | None:
    from luminal.backends.cpu import machine_code

    _finish_before_exit()
    try:
        return machine_code.compile_object(ir_text, key[1])
    except LuminalError:  # the caller meets it as well, and says so
        return None


@functools.cache
def _finish_before_exit() -> None:
    """Has the process wait for LLVM at its end, and lets no thread come to LLVM after that."""
    from luminal.backends.cpu import machine_code

    # Who holds LLVM's lock as the interpreter ends keeps a daemon thread out of a library that is
    # being taken down.
    atexit.register(machine_code.lock.acquire)


_turns = forks.lock()
_takers = 0
_usual = sys.getswitchinterval()


@contextmanager
def _short_turns() -> Iterator[None]:
    """Threads give Python to each other at once, as long as one is in such a block."""
    global _takers, _usual
    with _turns:
        if _takers == 0:
            _usual = sys.getswitchinterval()
            # Only as long as there is work: shorter turns cost whatever else the process does.
            sys.setswitchinterval(min(TURN_SECONDS, _usual))
        _takers += 1
    try:
        yield
    finally:
        with _turns:
            _takers -= 1
            if _takers == 0:
                sys.setswitchinterval(_usual)


def _begin_anew() -> None:
    """A forked child has none of these threads."""
    global _takers
    if _takers:
        _takers = 0
        sys.setswitchinterval(_usual)


forks.on_fork(_begin_anew)

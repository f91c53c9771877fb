"""A worker process as the search sees it: calls with time limits, killed and replaced at will."""

from __future__ import annotations

import pickle
import selectors
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from typing import IO, Any

from luminal.base import config
from luminal.runtime.pipes import close, receive, send
from luminal.search.messages import Failure, pack, unpack

START_SECONDS = 60.0  # a machine under load takes long to import


class Lost(Exception):
    """The process died or ran out of time; the text says which."""


class Died(Lost):
    """The process died: of the request, or killed by someone (memory ran out)."""


class Refused(Exception):
    """The process answered with an error of Luminal's."""


# A candidate may hang, take all memory or crash: whatever it does only its process is lost. A
# failed candidate is a record, not an error of the search.
class Process:
    """One worker. `descriptor`: the shared file of operands, for a process that runs programs.

    Raises Lost where no process can be started.
    """

    def __init__(self, backend: str, descriptor: int | None = None) -> None:
        with ExitStack() as stack:
            try:
                self._messages = stack.enter_context(tempfile.TemporaryFile())
                self._process = _started(backend, descriptor, self._messages)
            except OSError as error:
                raise Lost(f"no process could be started: {error}") from None
            stack.pop_all()  # the file stays open
        self.is_new = True  # it has answered nothing yet

    def start(self, data: bytes) -> None:
        """Sends a packed request; `answer` waits for what comes of it."""
        assert self._process.stdin is not None
        try:
            send(self._process.stdin, data)
        except BrokenPipeError:
            raise Died(self._death()) from None

    def answer(self, seconds: float) -> Any:
        """The result. Raises Refused for an error of Luminal's, Lost for a dead or late process."""
        stream = self._process.stdout
        assert stream is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            if not selector.select(max(0.0, seconds)):
                self.kill()
                raise Lost(f"took longer than {seconds:g} s")
        try:
            reply = unpack(receive(stream), _no_references)
        except (EOFError, pickle.UnpicklingError):
            raise Died(self._death()) from None
        self.is_new = False
        if isinstance(reply, Failure):
            raise Refused(reply.text)
        return reply

    def call(self, operation: str, *arguments: Any, seconds: float) -> Any:
        """Sends one request and gives its result; see `answer`."""
        self.start(pack((operation, arguments)))
        return self.answer(seconds)

    def fileno(self) -> int:
        """Readable when an answer waits, or when the process has died."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def is_dead(self) -> bool:
        """Has the process ended?"""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Ends the process now."""
        self._process.kill()
        self._close()

    def _close(self) -> None:
        close(self._process)
        self._messages.close()

    def _death(self) -> str:
        """Why the process is gone, with its last words; closes what is left of it."""
        code = self._process.wait()
        self._messages.seek(0)
        lines = self._messages.read().decode(errors="replace").strip().splitlines()
        self._close()
        reason = f"died of signal {-code}" if code < 0 else f"ended with status {code}"
        inside = [k for k, line in enumerate(lines) if line.startswith(" ")]
        words = lines[inside[-1] + 1 :] if inside else lines[-1:]  # an error with its notes
        return "; ".join([reason, *words[:3]])


def _started(backend: str, descriptor: int | None, messages: IO[bytes]) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-m", "luminal.search.worker", backend]
    return subprocess.Popen(
        arguments if descriptor is None else [*arguments, str(descriptor)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=messages,
        pass_fds=() if descriptor is None else (descriptor,),
        env=config.child_environment(),
        start_new_session=True,  # an interrupt is the search's to handle
    )


def _no_references(reference: tuple[Any, ...]) -> Any:
    raise pickle.UnpicklingError(f"an answer refers to {reference}")


class Builders:
    """Processes that compile kernels side by side; a lost one is replaced."""

    def __init__(self, backend: str, count: int, seconds: float) -> None:
        self._backend = backend
        self._count = count
        self._seconds = seconds
        self._all: list[Process] = []  # that may live
        self._idle: list[Process] = []

    def build(self, requests: list[tuple[Any, ...]]) -> list[str | None]:
        """The answer to each `build` request, in order: None, or why there is no code.

        A request whose process died is tried once more: it may have been killed for other reasons.
        Raises TypeError or PicklingError for one that cannot travel.
        """
        packed = [pack(("build", request)) for request in requests]
        try:
            results = self._build(dict(enumerate(packed)))
            died = {k: packed[k] for k, result in results.items() if isinstance(result, Died)}
            results |= self._build(died)
        except BaseException:  # an interrupt: those at work would answer late
            self.close()
            raise
        return [None if result is None else str(result) for _, result in sorted(results.items())]

    def _build(self, requests: dict[int, bytes]) -> dict[int, Lost | Refused | None]:
        # LLVM can crash or hang on a candidate: each build is a request to a process that may die.
        # Requests go out as processes come free, and each has its own deadline.
        results: dict[int, Lost | Refused | None] = {}
        busy: dict[Process, tuple[int, float]] = {}
        waiting = list(requests.items())[::-1]
        while waiting or busy:
            while waiting and len(busy) < self._count:
                number, request = waiting.pop()
                try:
                    process = self._idle.pop() if self._idle else self._new()
                    process.start(request)
                except Lost as lost:
                    results[number] = lost
                    continue
                limit = self._seconds + (START_SECONDS if process.is_new else 0)
                busy[process] = number, time.monotonic() + limit
            for process in _ready(busy):
                number, deadline = busy.pop(process)
                try:
                    process.answer(max(0.0, deadline - time.monotonic()))
                    results[number] = None
                    self._idle.append(process)
                except Refused as refused:
                    results[number] = refused
                    self._idle.append(process)
                except Lost as lost:
                    results[number] = lost
        return results

    def _new(self) -> Process:
        self._all = [process for process in self._all if not process.is_dead]
        self._all.append(Process(self._backend))
        return self._all[-1]

    def close(self) -> None:
        """Ends all processes that compile."""
        with ExitStack() as stack:  # all of them, even if another interrupt comes
            for process in self._all:
                stack.callback(process.kill)
        self._all.clear()
        self._idle.clear()


def _ready(busy: dict[Process, tuple[int, float]]) -> list[Process]:
    """The processes with an answer, or out of time; waits for one."""
    if not busy:
        return []
    with selectors.DefaultSelector() as selector:
        for process in busy:
            selector.register(process.fileno(), selectors.EVENT_READ, process)
        soonest = min(deadline for _, deadline in busy.values())
        events = selector.select(max(0.0, soonest - time.monotonic()))
    if events:
        return [key.data for key, _ in events]
    now = time.monotonic()
    return [process for process, (_, deadline) in busy.items() if deadline <= now]

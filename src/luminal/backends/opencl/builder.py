"""Texts to binaries in a process of its own: `python -m luminal.backends.opencl.builder NUMBER`.

Intel's compiler for CPUs writes to memory that it has freed: a pass keeps a place in a table while
it adds to the table (`ReduceCrossBarrierValuesPass`, which programs need: docs/lessons.md). With
large kernels malloc finds its lists damaged, then or anywhere later, or nobody does. So that
compiler is given a process where nothing else lives. One that dies, or stands still, is started
again, once for a text.
"""

from __future__ import annotations

import atexit
import functools
import pickle
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence

from luminal.base import forks
from luminal.base.errors import CompileError
from luminal.runtime.pipes import answers, close, receive, send

SECONDS = 120.0  # for one text, beyond which a process stands still
TRIES = 2


class Refused(Exception):
    """The device's compiler refuses a text; the error's text is the compiler's."""


class Builder:
    """Builds texts by what a command starts, whose `main` is below."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = forks.lock()
        forks.on_fork(self._forget)

    def binary(self, text: str, options: Sequence[str]) -> bytes:
        """The binary of a text. Raises Refused, or CompileError where the compiler died every
        time.
        """
        with self._lock:
            for _ in range(TRIES):
                try:
                    program, words = pickle.loads(self._answer(pickle.dumps((text, [*options]))))
                except (EOFError, OSError, TimeoutError):
                    self.end()
                    continue
                except BaseException:  # an interrupt: what is answered then is of no use
                    self.end()
                    raise
                if program is None:
                    raise Refused(words)
                return bytes(program)
        raise CompileError(
            f"OpenCL: the device's compiler died, or took more than {SECONDS:.0f} s, {TRIES} times "
            "for one kernel; use another device, lm.devices() lists them"
        )

    def end(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            close(process)

    def _answer(self, request: bytes) -> bytes:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        send(stdin, request)
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(SECONDS):
                raise TimeoutError
        return receive(stdout)

    def _forget(self) -> None:
        """A forked child starts a process of its own; its parent's goes on."""
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # it is no child of this one


@functools.cache
def builder(number: int) -> Builder:
    """The builder of this process for a device, which ends with the process."""
    process = Builder([sys.executable, "-m", __name__, str(number)])
    atexit.register(process.end)
    return process


def main() -> None:
    """Answers texts with binaries until there are no more texts."""
    import pyopencl as cl

    from luminal.backends.opencl import platforms, programs

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started this
    stream = answers()
    device = platforms.devices()[int(sys.argv[1])]
    context = cl.Context([device])
    while True:
        try:
            text, options = pickle.loads(receive(sys.stdin.buffer))
        except EOFError:
            return
        program, words = None, ""
        try:
            program = programs.binary(context, text, options)
        except cl.Error as error:
            words = str(error)
        send(stream, pickle.dumps((program, words)))


if __name__ == "__main__":
    main()

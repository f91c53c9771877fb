"""What ends all ranks when one fails: without it the others wait for ever for one that is gone."""

from __future__ import annotations

import sys
import threading
from types import TracebackType

from luminal.runtime.collectives.engine import Engine

FAILED = 1  # the status of a process that an exception ended
INTERRUPTED = 130  # and of one that Ctrl-C ended: 128 + SIGINT


def install(engine: Engine) -> None:
    """From now on an exception that nobody catches, in whatever thread, shows its traceback with
    the number of this rank, and ends all ranks.
    """
    shown, shown_of_thread = sys.excepthook, threading.excepthook

    def fail(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        try:
            print(f"rank {engine.rank} of {engine.size}:", file=sys.stderr)
            shown(kind, error, traceback)
        finally:
            engine.abort(_summary(error), status(error))

    def fail_of_thread(failure: threading.ExceptHookArgs) -> None:
        if failure.exc_type is SystemExit:  # which ends its thread only
            return
        try:
            print(f"rank {engine.rank} of {engine.size}:", file=sys.stderr)
            shown_of_thread(failure)
        finally:
            engine.abort(_summary(failure.exc_value or failure.exc_type()), FAILED)

    sys.excepthook = fail
    threading.excepthook = fail_of_thread


def _summary(error: BaseException) -> str:
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def status(error: BaseException) -> int:
    """The exit status of a process that an exception ends."""
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED

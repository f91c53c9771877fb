"""SIGTERM and SIGHUP unwind a command as Ctrl-C does: what is half written does not stay behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(
    signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if name in signal.Signals.__members__
)  # Windows has no SIGHUP


class Ended(BaseException):
    """The process was told to end. No handler of errors takes it for one."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Inside the block the first of these signals is an exception; then the process dies of it.

    The second one ends it at once. One that is ignored, as nohup has it, stays so. Outside of the
    main thread signals do not arrive, and nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    # As an exception, a signal runs every `finally` on its way out: temporary files go and the
    # terminal is as it was. BaseException, so that no handler of errors takes it for one.
    def unwind(number: int, frame: FrameType | None) -> None:
        let_go()
        raise Ended(number)

    def let_go() -> None:
        for signal_number in taken:
            signal.signal(signal_number, signal.SIG_DFL)

    taken = [
        signal_number
        for signal_number in SIGNALS
        if signal.getsignal(signal_number) is signal.SIG_DFL
    ]
    for signal_number in taken:
        signal.signal(signal_number, unwind)
    try:
        yield
    except Ended as ended:
        # The handlers are gone by now, so the process dies of the signal itself. Whoever started it
        # reads that in its status, which an exit code of our own could not say.
        os.kill(os.getpid(), ended.number)
    finally:
        let_go()

"""Ctrl-C as a question that is asked between steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Remembers whether Ctrl-C was pressed."""

    requested = False


@contextmanager
def noticed_interrupts() -> Iterator[Interrupt]:
    """Inside the block the first Ctrl-C is noted, the second one interrupts as ever.

    Outside of the main thread signals do not arrive, and nothing changes.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def note(number: int, frame: FrameType | None) -> None:
        interrupt.requested = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)

"""Children of a fork, and threads that run meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CHILD_SECONDS = 30  # a child that waits for a lock of no one's is killed


@contextmanager
def threads(*actions: Callable[[], object]) -> Iterator[None]:
    """Each action again and again in a thread of its own, from before the block until after it."""
    stop = threading.Event()
    failures: list[BaseException] = []
    begun = [threading.Event() for _ in actions]

    def repeat(action: Callable[[], object], first: threading.Event) -> None:
        try:
            while not stop.is_set():
                action()
                first.set()
        except BaseException as error:
            failures.append(error)
            first.set()

    running = [
        threading.Thread(target=repeat, args=pair) for pair in zip(actions, begun, strict=True)
    ]
    for thread in running:
        thread.start()
    for each in begun:
        assert each.wait(60)
    try:
        yield
    finally:
        stop.set()
        for thread in running:
            thread.join()
    assert not failures


def in_child(check: Callable[[], None]) -> None:
    """Runs a check in a forked child."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(CHILD_SECONDS)
            check()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

"""What one rank finds out for all: the others wait for its answer, or for its error."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np

from luminal.base.errors import CollectiveError
from luminal.runtime.collectives.engine import Engine

T = TypeVar("T")
BEAT_SECONDS = 2.0
"""After so long a leader says that it still works, so that no deadline passes meanwhile."""


def from_leader(engine: Engine, find: Callable[[], T], label: str) -> T:
    """What `find` returns on the first rank, on all of them, which must all call this.

    Where it raises, all ranks raise the same error. `find` must not use the engine; it may take as
    long as it likes. Its result is pickled on the way.
    """
    if engine.size == 1:
        return find()
    if engine.rank:
        return cast(T, _followed(engine, label))
    try:
        with _beating(engine, label):
            answer = find()
    except BaseException as error:
        _send(engine, (False, _sendable(error)), label)
        raise
    _send(engine, (True, answer), label)
    return answer


def _followed(engine: Engine, label: str) -> Any:
    """The leader's answer, once it is there."""
    size = b""
    while not size:
        size = engine.exchange(b"", label)[0]
    data = np.empty(int(size), np.uint8)
    engine.run("broadcast", data, data, label=label, first=True)
    is_right, answer = pickle.loads(data.tobytes())
    if not is_right:
        answer.add_note(f"raised by rank 0, which does this for all: {label}")
        raise answer
    return answer


def _send(engine: Engine, answer: tuple[bool, Any], label: str) -> None:
    data = np.frombuffer(pickle.dumps(answer), np.uint8).copy()
    engine.exchange(b"%d" % data.size, label)
    engine.run("broadcast", data, data, label=label, first=True)


@contextmanager
def _beating(engine: Engine, label: str) -> Iterator[None]:
    """Inside the block a thread tells the others now and then that this rank still works."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            try:
                engine.exchange(b"", label)
            except CollectiveError:
                return  # the answer meets the same error, in the thread that can raise it

    thread = threading.Thread(target=beat, name="luminal-leader", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _sendable(error: BaseException) -> BaseException:
    """The error, or one in its words where it cannot be sent or would end a rank silently."""
    if isinstance(error, Exception):
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # of whatever its author left out
            pass
        else:
            return error
    return CollectiveError(f"rank 0: {type(error).__name__}: {error}")

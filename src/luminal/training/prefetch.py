"""Values made one ahead of another by a thread."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from luminal.base.records import dataclass

T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class _Raised:
    """What a call raised, in the place of its value."""

    error: BaseException


def prefetched(make: Callable[[K], T], keys: Sequence[K], depth: int) -> Iterator[T]:
    """`make(key)` for each key in order, up to `depth` values ahead; 0: none, without a thread.

    What `make` raises is raised where its value would be. The thread ends with the iterator, also
    where that is left early. A child of a fork has no such thread: it makes the rest by itself.
    """
    if depth == 0:
        return map(make, keys)
    return _prefetched(make, keys, depth)


def _prefetched(make: Callable[[K], T], keys: Sequence[K], depth: int) -> Iterator[T]:
    owner = os.getpid()
    ahead = _Ahead(make, keys, depth)
    try:
        for key in keys:
            yield ahead.next() if os.getpid() == owner else make(key)
    finally:
        if os.getpid() == owner:
            ahead.close()


class _Ahead(Generic[K, T]):
    """The thread and the values that it has made."""

    def __init__(self, make: Callable[[K], T], keys: Sequence[K], depth: int) -> None:
        self._make, self._keys = make, keys
        self._made: queue.Queue[T | _Raised] = queue.Queue(depth)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="luminal-prefetch", daemon=True)
        self._thread.start()

    def next(self) -> T:
        """The next value, or what making it raised."""
        value = self._made.get()
        if isinstance(value, _Raised):
            raise value.error
        return value

    def close(self) -> None:
        """Ends the thread and waits for it."""
        self._closed.set()
        with contextlib.suppress(queue.Empty):
            self._made.get_nowait()  # it may wait for room; there is one more at most to make
        self._thread.join()

    def _work(self) -> None:
        for key in self._keys:
            if self._closed.is_set():
                return
            try:
                value: T | _Raised = self._make(key)
            except BaseException as error:
                value = _Raised(error)
            self._made.put(value)
            if isinstance(value, _Raised):
                return

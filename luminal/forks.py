"""Locks that a forked child can take.

A child has one thread, the one that forked. A lock that another thread held at that moment would
never be given back there: it is made free. What such a lock guarded may be half changed; whoever
needs to know that registers a function of its own (`os.register_at_fork`) after making the lock.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakValueDictionary

_locks: WeakValueDictionary[int, Any] = WeakValueDictionary()


def lock() -> threading.Lock:
    """A Lock that is free in a child."""
    made = threading.Lock()
    _locks[id(made)] = made
    return made


def rlock() -> threading.RLock:
    """An RLock that in a child is free, or the forking thread's if it was that before."""
    made = threading.RLock()
    _locks[id(made)] = made
    return made


def _free_in_child() -> None:
    for each in list(_locks.values()):
        is_owned = getattr(each, "_is_owned", None)  # an RLock's
        if is_owned is None or not is_owned():
            each._at_fork_reinit()  # as the standard library does with its own locks


os.register_at_fork(after_in_child=_free_in_child)

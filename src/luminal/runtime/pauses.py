"""Runs and forks: a fork waits for runs in other threads, so that a child finds whole States."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from luminal.base import forks

T = TypeVar("T")

FORK_SECONDS = 1.0
"""How long a fork waits for runs in other threads: what they change is whole in the child then."""


_live: WeakKeyDictionary[Any, tuple[threading.RLock, Callable[[Any], None]]] = WeakKeyDictionary()
_paused: dict[int, list[Any]] = {}  # by the thread that forks


def register(owner: T, lock: threading.RLock, abandon: Callable[[T], None]) -> None:
    """Makes forks wait for `lock`, which `owner` holds while it runs, as long as that lives.
    `abandon`: in a child, forgets a run that another thread of the parent goes on with.
    """
    _live[owner] = lock, abandon


def _before_fork() -> None:
    # A child inherits memory but not threads: a run that is half-way in another thread never ends
    # there, and its State is half old, half new. So a fork waits for runs, but not for ever.
    end = time.monotonic() + FORK_SECONDS
    paused = _paused[threading.get_ident()] = []
    for owner, (lock, _) in list(_live.items()):
        # All locks share one time limit: a process with many programs must not wait a second for
        # each.
        if lock.acquire(timeout=max(0.0, end - time.monotonic())):
            paused.append(owner)


def _after_in_parent() -> list[Any]:
    paused = _paused.pop(threading.get_ident(), [])
    for owner in paused:
        _live[owner][0].release()
    return paused


def _after_in_child() -> None:
    whole = set(map(id, _after_in_parent()))
    for owner, (_, abandon) in list(_live.items()):
        if id(owner) not in whole:
            abandon(owner)


forks.on_fork(_after_in_child, before=_before_fork, after_in_parent=_after_in_parent)

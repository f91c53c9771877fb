"""Locks that a forked child can take, and attributes computed without one.

A child has one thread, the one that forked. A lock that another thread held at that moment would
never be given back there: it is made free. What such a lock guarded may be half changed; whoever
needs to know that registers a function of its own (`on_fork`) after making the lock.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, Self, TypeVar, overload
from weakref import WeakValueDictionary

S = TypeVar("S")
T = TypeVar("T")

_locks: WeakValueDictionary[int, Any] = WeakValueDictionary()


def lock() -> threading.Lock:
    """A Lock that is free in a child."""
    new_lock = threading.Lock()
    _locks[id(new_lock)] = new_lock
    return new_lock


def rlock() -> threading.RLock:
    """An RLock that in a child is free, or the forking thread's if it was that before."""
    new_lock = threading.RLock()
    _locks[id(new_lock)] = new_lock
    return new_lock


class cached_property(Generic[T]):
    """An attribute that is computed when it is first read, as `functools.cached_property`.

    That holds one lock for all objects of a class while it computes (until Python 3.12), which
    nobody would give back in a child. Two threads may both compute a value here.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(self, instance: Any, owner: Any = None) -> T: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.function(instance)
        return value


def kept(function: Callable[[S], T]) -> Callable[[S], T]:
    """The function, whose value is computed once for each object and kept with it: a
    `cached_property` for what its class does not know of.
    """
    name = f"{function.__module__}.{function.__name__}"

    @wraps(function)
    def read(instance: S) -> T:
        attributes: dict[str, Any] = instance.__dict__
        if name not in attributes:
            attributes[name] = function(instance)
        value: T = attributes[name]
        return value

    return read


def _free_in_child() -> None:
    for held in list(_locks.values()):
        is_owned = getattr(held, "_is_owned", None)  # an RLock's
        if is_owned is None or not is_owned():
            held._at_fork_reinit()  # as the standard library does with its own locks


def on_fork(
    after_in_child: Callable[[], object],
    before: Callable[[], object] = lambda: None,
    after_in_parent: Callable[[], object] = lambda: None,
) -> None:
    """Has these functions called around each fork of this process; nothing on Windows, which has
    none.
    """
    if sys.platform != "win32":
        os.register_at_fork(
            before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
        )


on_fork(_free_in_child)

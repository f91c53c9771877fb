"""What a recording reads besides its arguments: attributes of the modules that it calls.

A program compiled from a recording holds as long as these attributes do: `model.eval()`, another
layer in a layer's place or another number ask for a new one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import attrgetter, is_
from typing import Any

from luminal.base.records import dataclass

SCALARS = (bool, int, float, str, bytes, tuple)

_watched: ContextVar[Watched | None] = ContextVar("luminal_watched", default=None)


def watch(obj: object | None) -> None:
    """Notes that what is recorded now reads attributes of `obj`."""
    watched = _watched.get()
    if watched is not None and obj is not None:
        watched.add(obj)


@contextmanager
def watching() -> Iterator[Watched]:
    """Collects what is watched inside the block."""
    token = _watched.set(Watched())
    try:
        watched = _watched.get()
        assert watched is not None
        yield watched
    finally:
        _watched.reset(token)


class Watched:
    """Objects and the attributes they had when a recording met them."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[Any, dict[str, Any]]] = {}

    def add(self, obj: Any) -> None:
        """Meets an object, and if it is a module all modules below it."""
        below = (
            [module for _, module in obj.named_modules()] if hasattr(obj, "named_modules") else []
        )
        for part in below or [obj]:
            if id(part) not in self._met:
                self._met[id(part)] = part, _attributes(part)

    def snapshot(self) -> tuple[Seen, ...]:
        """The attributes as they are after the recording, without those that it changed itself."""
        records = []
        for obj, before in self._met.values():
            after = _attributes(obj)
            kept = {name: after[name] for name in before if after.get(name) is before[name]}
            if kept:
                records.append(Seen.of(obj, kept))
        return tuple(records)


@dataclass(frozen=True, slots=True)
class Seen:
    """The attributes of one object as they were; the object itself is not kept alive."""

    obj: Callable[[], Any]
    get: Callable[[Any], tuple[Any, ...]]
    values: tuple[Any, ...]
    contents: tuple[tuple[Any, ...], ...]  # of the lists and dicts among the values

    @classmethod
    def of(cls, obj: Any, attributes: dict[str, Any]) -> Seen:
        """The record of these attributes of an object."""
        values = tuple(attributes.values())
        contents = tuple(_content(v) for v in values if isinstance(v, list | dict))
        return cls(_reference(obj), attrgetter(*attributes, "__class__"), values, contents)

    def holds(self) -> bool:
        """Has the object these attributes still?"""
        try:
            now = self.get(self.obj())[:-1]
        except AttributeError:
            return False
        # Identity is asked first: it is the quick answer, and nearly always enough.
        if not all(map(is_, now, self.values)) and not all(map(_same, now, self.values)):
            return False
        if not self.contents:
            return True
        contents = (_content(value) for value in now if isinstance(value, list | dict))
        return all(map(_equal_parts, contents, self.contents))


def _attributes(obj: Any) -> dict[str, Any]:
    """An object's attributes, with the plain ones of its class where it has none of its own."""
    attributes = {}
    # From the farthest base on, so that a subclass's attribute takes the place of its base's.
    for kind in reversed(type(obj).__mro__[:-1]):
        for name, value in vars(kind).items():
            if not (name.startswith("__") or callable(value) or hasattr(value, "__get__")):
                attributes[name] = value
    return attributes | getattr(obj, "__dict__", {})


def _reference(obj: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(obj)
    except TypeError:
        return lambda: obj


def _content(value: list[Any] | dict[Any, Any]) -> tuple[Any, ...]:
    return (*value, *value.values()) if isinstance(value, dict) else tuple(value)


def _equal_parts(now: Sequence[Any], then: Sequence[Any]) -> bool:
    return len(now) == len(then) and all(map(_same, now, then))


def _same(now: Any, then: Any) -> bool:
    if now is then:
        return True
    # True, 1 and 1.0 are equal, and record different programs.
    return type(now) is type(then) and isinstance(now, SCALARS) and bool(now == then)

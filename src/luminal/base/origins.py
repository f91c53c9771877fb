"""What kernels and buffers are called in reports: the modules, operations and lines of a user that
they come from, in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from luminal.base.lines import Recorded, printable

WORDS = 8  # operations of a module that are listed
MODULES = 8  # modules that are listed
LINES = 6  # lines of a file that are listed


class _Place(NamedTuple):
    """The path of a module, and whether it is gradients of it that are computed."""

    path: str
    is_gradient: bool


def described(origins: Iterable[Recorded | None]) -> str:
    """What was fused, by where it was recorded: `layers.*.mlp: up, silu, mul (model.py:41, 42)`.

    A layer of this package is a word of the module around it, as an operation is. A part of a path
    in which the first and the last of rolled layers differ is a star. "" for no origins.
    """
    places: dict[_Place, dict[str, None]] = {}
    lines: dict[str, dict[str, None]] = {}
    outermost = ""
    for origin in filter(None, origins):
        path, kind = _split(origin)
        outermost = outermost or (kind if not path else "")
        word = origin.call
        if path and not word:
            path, _, word = path.rpartition(".")
            word = word if word.isidentifier() else f"{word} ({kind})"
        words = places.setdefault(_Place(path, origin.is_gradient), {})
        words |= {word: None} if word else {}
        if origin.line.file:
            file, number = str(origin.line).rsplit(":", 1)
            lines.setdefault(file, {})[number] = None
    parts = [_part(place, [*words], outermost) for place, words in places.items()]
    said = "; ".join(filter(None, _listed(parts, MODULES)))
    where = [f"{file}:{', '.join(_listed([*numbers], LINES))}" for file, numbers in lines.items()]
    return " ".join(
        filter(None, (said, f"({', '.join(_listed(where, MODULES))})" if where else ""))
    )


class Paths(NamedTuple):
    """The module paths for which one origin stands: of rolled layers those from the first to the
    last, else one.
    """

    first: Sequence[str]
    last: Sequence[str]

    def matches(self, other: Recorded | None) -> bool:
        """Is an origin's module one of them?"""
        path = [] if other is None else _parsed(other.module)[0].split(".")
        if len(path) != len(self.first):
            return path == self.last
        return all(
            part in (mine, theirs) or (mine != theirs and part.isdigit())
            for part, mine, theirs in zip(path, self.first, self.last, strict=True)
        )


def paths(origin: Recorded) -> Paths:
    """The module paths for which an origin stands."""
    first, last = (_parsed(r.module)[0].split(".") for r in (origin, origin.last or origin))
    return Paths(first, last if len(last) == len(first) else first)


def module_of(origin: Recorded) -> tuple[str, str]:
    """The path of the module that was called ("" for the outermost one), and its class."""
    return _parsed(origin.module)


def lines_of(origins: Iterable[Recorded | None]) -> tuple[tuple[str, int], ...]:
    """The lines where it was recorded, each once: the path of a file and a number."""
    lines = (origin.line for origin in filter(None, origins))
    return tuple(dict.fromkeys((line.file, line.number) for line in lines if line.file))


def _split(origin: Recorded) -> tuple[str, str]:
    """The path of the module and its class."""
    path, kind = _parsed(origin.module)
    if origin.last is not None:
        last, outermost = _parsed(origin.last.module)
        path = _starred(path, last or outermost)
    return path, kind


def _parsed(module: str) -> tuple[str, str]:
    """The path and the class of what `lines.now` says: `layers.0 (Block)`, or `Net`."""
    path, _, kind = printable(module).rpartition(" (")
    return (path, kind.removesuffix(")")) if path else ("", module)


def _starred(first: str, last: str) -> str:
    mine, theirs = first.split("."), last.split(".")
    if len(mine) != len(theirs):
        return f"{first} to {last}"
    return ".".join(a if a == b else "*" for a, b in zip(mine, theirs, strict=True))


def _part(place: _Place, words: Sequence[str], outermost: str) -> str:
    """The words for one module: its path, and what was called in it."""
    said = ": ".join(filter(None, (place.path or outermost, ", ".join(_listed(words, WORDS)))))
    return f"gradient of {said}" if place.is_gradient and said else said


def _listed(words: Sequence[str], most: int) -> list[str]:
    """The words, or the first of them and how many more there are."""
    if len(words) <= most:
        return [*words]
    return [*words[: most - 1], f"{len(words) - most + 1} more"]

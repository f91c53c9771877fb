"""The user's lines: where values were recorded, and where errors were raised.

A line is that of the first frame outside of this package. It is no part of what a value is: values
that differ in nothing else are one value, which keeps the line that was first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

_PACKAGE = str(Path(__file__).parents[1])
_FRONTEND = str(Path(_PACKAGE, "frontend"))
_COMMANDS = str(Path(_PACKAGE, "cli"))
_LIBRARY = str(Path(sys.modules["contextlib"].__file__ or "").parent)


def printable(name: str) -> str:
    """A name for a line of text: newlines and the like, which a file or a module may have in its
    name, are written as escapes.
    """
    return name if name.isprintable() else name.encode("unicode_escape").decode()


class Line(NamedTuple):
    """A line of a file, and the function that it stands in."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        path = Path(self.file)
        name = self.file if self.file.startswith("<") else path.name
        if path.parent.name.startswith("ipykernel_"):  # notebooks call files of cells by hashes
            name = "cell"
        return f"{printable(name)}:{self.number}"


class Recorded(NamedTuple):
    """Where a value comes from: the line, the module that was called and the operation as it was
    called ("" where there is none). Of a gradient: those of the value that it is the gradient of.
    `last`: of the last one of equal layers, where the first one stands for all.
    """

    line: Line
    module: str = ""
    call: str = ""
    is_gradient: bool = False
    last: Recorded | None = None

    def __str__(self) -> str:
        of = "gradient of " if self.is_gradient and self.call else "gradient" * self.is_gradient
        place = f"in {self.module}" if self.module else ""
        line = f"at {self.line}" if self.line.file else ""
        return " ".join(filter(None, (of + self.call, place, line)))


NOWHERE = Line("", 0, "")
"""The line of what no user's line records, as in a command."""

now: ContextVar[str | Recorded] = ContextVar("luminal_lines_now", default="")
"""The module that is being called, or what is said of all that is recorded."""


@contextmanager
def restored() -> Iterator[None]:
    """After the block `now` is what it was before."""
    before = now.get()
    try:
        yield
    finally:
        now.set(before)


def gradients_of(recorded: Recorded | None) -> None:
    """What is recorded from here on are gradients of a value that comes from there."""
    now.set("" if recorded is None else recorded._replace(is_gradient=True))


_OUTSIDE, _INSIDE, _CALL, _COMMAND = range(4)

# By the ids of code objects, which are held here and in `Lines`: to hash one hashes all it is made
# of, which takes longer than all else here.
_kinds: dict[int, int] = {}
_held: list[CodeType] = []


def _kind(code: CodeType) -> int:
    """Is code a user's, or of this package, or a function in it that records an operation, or one
    of the `luminal` command? What calls a command is no line of a user.
    """
    kind = _kinds.get(id(code))
    if kind is None:
        file = code.co_filename
        if file.startswith(_FRONTEND) and "<" not in code.co_qualname:
            kind = _CALL
        elif file.startswith(_COMMANDS):
            kind = _COMMAND
        elif file.startswith((_PACKAGE, "<records>", "<frozen")):
            kind = _INSIDE
        else:  # packages of others lie below the library's folder
            kind = _INSIDE if file.startswith(_LIBRARY) and "-packages" not in file else _OUTSIDE
        _held.append(code)
        _kinds[id(code)] = kind
    return kind


class Lines:
    """Says of each value where it comes from, as it is recorded."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, int, int, str], Recorded] = {}

    # This runs for every node, so it looks at code objects and at nothing else of a frame: to find
    # the number of a line takes longer than the walk.
    def __call__(self) -> Recorded | None:
        module = now.get()
        if isinstance(module, Recorded):
            return module
        frame: FrameType | None = sys._getframe(3)  # nearer ones are the Builder's
        call, kinds = None, _kinds
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = _kind(code)
            if kind == _OUTSIDE:
                key = (id(code), frame.f_lasti, id(call), module)
                told = self._told.get(key)
                if told is None:
                    name = "" if call is None else call.co_name.strip("_")
                    told = self._told[key] = Recorded(_line(frame), module, name)
                return told
            if kind == _COMMAND:
                break
            if kind == _CALL:
                call = code
            frame = frame.f_back
        if not module:
            return None
        name = "" if call is None else call.co_name.strip("_")
        return self._told.setdefault((0, 0, id(call), module), Recorded(NOWHERE, module, name))


def calling(name: str, kind: type) -> Token[str | Recorded]:
    """A module of this class is called: of one of this package all that it records comes from the
    line that calls it. For `now.reset`.
    """
    if not kind.__module__.startswith("luminal."):
        return now.set(name)
    before = now.get()
    if isinstance(before, Recorded):
        return now.set(Recorded(before.line, name))
    line = line_here()
    return now.set(name if line is None else Recorded(line, name))


def line_here() -> Line | None:
    """The user's line that is being executed; None where a thread or command is all Luminal's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        kind = _kind(frame.f_code)
        if kind in (_OUTSIDE, _COMMAND):
            return _line(frame) if kind == _OUTSIDE else None
        frame = frame.f_back
    return None


def user_level() -> int:
    """The `stacklevel` by which a warning of the function that asks is of the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _kind(frame.f_code) != _OUTSIDE:
        level, frame = level + 1, frame.f_back
    return level


def recorded_here(call: str) -> Recorded | None:
    """Where what is not a value comes from: the line that is being executed."""
    module = now.get()
    if isinstance(module, Recorded):
        return module
    line = line_here()
    return None if line is None else Recorded(line, module, call)


def to_last(first: Recorded | None, last: Recorded | None) -> Recorded | None:
    """Where what stands for equal layers comes from, by those of the first and the last one."""
    if first is None or last is None or first.last is not None:
        return first
    return first._replace(last=last) if first != last else first


def told(recorded: Recorded | None) -> str:
    """At the end of an error's text: where something comes from, if that is known."""
    return "" if recorded is None else f" ({recorded})"


def _line(frame: FrameType) -> Line:
    return Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)

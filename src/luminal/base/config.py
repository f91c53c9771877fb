"""Every flag of Luminal, declared once; the only place that reads the environment.

A flag is an environment variable. `get` reads it at each call, so that a change of the environment
is seen; `override` replaces flags for the length of a `with` block. Overrides are process-wide
(worker threads see them), not per thread.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, overload

import platformdirs

from luminal.base.errors import InputError
from luminal.base.records import dataclass

Value = int | float | str | Path | None

DEBUG_LADDER = (
    "errors are one line",
    "tracebacks, compile summary",
    "kernels",
    "selection and program",
    "tile IR",
    "LLVM IR",
    "assembly",
)
"""What LUMINAL_DEBUG=n shows: step n and every step below it."""

TARGETS = ("native", "avx512", "avx2", "sve256", "v8.6", "v8.2", "neon", "baseline")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: how its text is read and what it stands for when it is not set.

    `parse` turns the text into the value and raises ValueError where the text breaks `rule`.
    """

    name: str
    parse: Callable[[str], Value]
    default: Callable[[], Value]
    rule: str
    help: str
    enters_cache_key: bool = False


@dataclass(frozen=True, slots=True)
class FlagState:
    """A flag's row in `table()`."""

    flag: Flag
    value: Value
    is_default: bool


def _integer(lo: int, hi: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if number < lo or (hi is not None and number > hi):
            raise ValueError(text)
        return number

    return parse


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _choice(options: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in options:
            raise ValueError(text)
        return text

    return parse


def _switch(text: str) -> bool:
    return {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}[
        text.lower()
    ]


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()  # and so it stays, wherever the process goes


DISPATCHES = ("list", "graph", "one")
FLAGS: dict[str, Flag] = {
    flag.name: flag
    for flag in (
        Flag(
            "LUMINAL_DEBUG",
            _integer(0, len(DEBUG_LADDER) - 1),
            lambda: 0,
            f"takes an integer from 0 to {len(DEBUG_LADDER) - 1}",
            "; ".join(f"{level}: {what}" for level, what in enumerate(DEBUG_LADDER)),
        ),
        Flag(
            "LUMINAL_THREADS",
            _integer(1),
            lambda: None,
            "takes an integer >= 1; leave it unset to use every CPU this process may use",
            "most threads a run may use",
        ),
        Flag(
            "LUMINAL_CACHE_DIR",
            _path,
            lambda: platformdirs.user_cache_path("luminal"),
            "takes the path of a directory",
            "where compiled kernels are kept between processes",
        ),
        Flag(
            "LUMINAL_CACHE_BYTES",
            _integer(0),
            lambda: 1 << 30,
            "takes a number of bytes >= 0",
            "size of the kernel cache above which the least recently used entries go",
        ),
        Flag(
            "LUMINAL_TARGET",
            _choice(TARGETS),
            lambda: "native",
            f"takes one of {', '.join(TARGETS)}: sve256, v8.6, v8.2 and neon are AArch64's",
            "instruction set of the CPU to compile for, at most what the machine has",
            enters_cache_key=True,
        ),
        Flag(
            "LUMINAL_VERIFY",
            _switch,
            lambda: False,
            "takes 1 or 0",
            "verify every IR between the steps of the compiler",
        ),
        Flag(
            "LUMINAL_POISON",
            _switch,
            lambda: False,
            "takes 1 or 0",
            "fill memory with NaN before each run, so that reads of what nobody wrote are seen",
        ),
        Flag(
            "LUMINAL_DISPATCH",
            _choice(DISPATCHES),
            lambda: None,
            f"takes one of {', '.join(DISPATCHES)}; leave it unset for what a program chooses",
            "how a device is given launches: one by one, as a graph where they come again, or as "
            "one persistent kernel",
        ),
        Flag(
            "LUMINAL_SYNC",
            _switch,
            lambda: False,
            "takes 1 or 0",
            "wait for each launch on a device, so that one which fails is named",
        ),
        Flag(
            "LUMINAL_COLLECTIVE_TIMEOUT",
            _seconds,
            lambda: 60.0,
            "takes seconds > 0",
            "how long a rank waits for others in one collective; ten times as long in the first",
        ),
        Flag(
            "LUMINAL_LINES",
            _switch,
            lambda: True,
            "takes 1 or 0",
            "remember of each value the line and the module that recorded it, for errors and "
            "reports",
        ),
        Flag(
            "LUMINAL_PRINT_EGGLOG",
            _switch,
            lambda: False,
            "takes 1 or 0",
            "print the programs of the e-graph (egglog) to stderr",
        ),
        Flag(
            "LUMINAL_GRAPHVIZ",
            _path,
            lambda: None,
            "takes the path of a directory",
            "where pictures of e-graphs (DOT) are written",
        ),
        Flag(
            "LUMINAL_TRACE",
            _path,
            lambda: None,
            "takes the path of a file",
            "where this process and those it starts write what they do: compiles, searches, runs",
        ),
        Flag(
            "LUMINAL_PRINT_REJECT",
            _switch,
            lambda: False,
            "takes 1 or 0",
            "print each candidate that a search rejects, and why",
        ),
    )
}

# Texts that stand in for the environment inside `override`; None means: as if unset.
_overrides: dict[str, str | None] = {}

changes = 0
"""Of overrides so far: what was derived of flags holds while this stays."""


@overload
def get(name: Literal["LUMINAL_DEBUG", "LUMINAL_CACHE_BYTES"]) -> int: ...
@overload
def get(name: Literal["LUMINAL_THREADS"]) -> int | None: ...
@overload
def get(name: Literal["LUMINAL_CACHE_DIR"]) -> Path: ...
@overload
def get(name: Literal["LUMINAL_TARGET"]) -> str: ...
@overload
def get(name: Literal["LUMINAL_DISPATCH"]) -> str | None: ...
@overload
def get(name: Literal["LUMINAL_COLLECTIVE_TIMEOUT"]) -> float: ...
@overload
def get(name: Literal["LUMINAL_GRAPHVIZ", "LUMINAL_TRACE"]) -> Path | None: ...
@overload
def get(
    name: Literal[
        "LUMINAL_VERIFY",
        "LUMINAL_POISON",
        "LUMINAL_SYNC",
        "LUMINAL_LINES",
        "LUMINAL_PRINT_EGGLOG",
        "LUMINAL_PRINT_REJECT",
    ],
) -> bool: ...
def get(name: str) -> Value:
    """The flag's value now. Raises InputError where its text breaks the flag's rule."""
    return _read(_flag(name))


# Process-wide: worker threads must follow the flags of the test that started them. It is meant for
# tests and tools, not for two threads that want two settings.
@contextmanager
def override(**flags: Value) -> Iterator[None]:
    """Set flags inside the block: `with config.override(LUMINAL_THREADS=1): ...`; None unsets."""
    texts = {name: None if value is None else str(value) for name, value in flags.items()}
    # All are checked before any takes effect: a wrong one changes nothing.
    for name, text in texts.items():
        flag = _flag(name)
        if text is not None:
            _parse(flag, text)
    before = dict(_overrides)
    _replace({**before, **texts})
    try:
        yield
    finally:
        _replace(before)


def _replace(texts: dict[str, str | None]) -> None:
    global changes
    _overrides.clear()
    _overrides.update(texts)
    changes += 1


def table() -> list[FlagState]:
    """Every flag with its value now, in the order of declaration."""
    return [FlagState(flag, _read(flag), _text(flag.name) is None) for flag in FLAGS.values()]


def child_environment() -> dict[str, str]:
    """The environment of a process that is to see the same flags and the same modules."""
    environment = {name: text for name, text in os.environ.items() if name not in _overrides}
    environment |= {name: text for name, text in _overrides.items() if text is not None}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return environment


@contextmanager
def environment(**texts: str) -> Iterator[None]:
    """Variables that a foreign library reads, set inside the block but for those the user set."""
    added = {name: text for name, text in texts.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def variable(name: str) -> str | None:
    """A variable that a foreign program sets, as launchers tell processes who they are."""
    return os.environ.get(name) or None


def forget(*names: str) -> None:
    """Takes variables of foreign programs from the environment of this process and its children."""
    for name in names:
        os.environ.pop(name, None)


def provide(**flags: Value) -> None:
    """Sets flags that the user has left unset, for this process and those that it starts."""
    global changes
    for name, value in flags.items():
        if _text(_flag(name).name) is None:
            os.environ[name] = str(value)
    changes += 1


def cache_key() -> tuple[tuple[str, Value], ...]:
    """The flags that change what is compiled, with their values."""
    return tuple((flag.name, _read(flag)) for flag in FLAGS.values() if flag.enters_cache_key)


def _flag(name: str) -> Flag:
    if name not in FLAGS:
        raise InputError(f"config: no flag {name!r}; the flags are {', '.join(FLAGS)}")
    return FLAGS[name]


def _text(name: str) -> str | None:
    text = _overrides[name] if name in _overrides else os.environ.get(name)
    return text or None  # an empty variable counts as unset, as in the shell's ${NAME:-}


def _read(flag: Flag) -> Value:
    text = _text(flag.name)
    return flag.default() if text is None else _parse(flag, text)


@functools.lru_cache(maxsize=128)
def _parse(flag: Flag, text: str) -> Value:
    try:
        return flag.parse(text)
    except (ValueError, KeyError):
        raise InputError(f"{flag.name}={text}: {flag.name} {flag.rule}") from None


def _settle_paths() -> None:
    """Paths of the environment count from here, wherever the process goes."""
    for flag in FLAGS.values():
        text = _text(flag.name)
        if flag.parse is _path and text is not None:
            with suppress(OSError, RuntimeError):  # no folder, no home: told where it is needed
                _parse(flag, text)


_settle_paths()

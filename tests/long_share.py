"""`--long-share K/N`: the short tests and one of N shares of the long ones. `--slow-share K/N`: of
those that `tests/slow.txt` names one of N shares, and all other short ones.

N runs with K = 0 .. N-1 meet every test once. A function's long tests, which take about as long as
each other, are dealt in turn from the share that a hash of its name says; a file's slow ones
likewise, so that each run has some of every file.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import pytest

from tests.slow import Recorder, file_of, function_of, functions

SHORT_ONLY = "not long"  # what pyproject.toml asks for where nothing else is said


class Share(NamedTuple):
    """The `number`-th of so many shares."""

    number: int
    of: int

    @classmethod
    def parse(cls, option: str, text: str) -> Share:
        """From "3/10", given to an option. Raises UsageError for anything that is no share."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and int(number) < int(of)):
            raise pytest.UsageError(
                f"{option} {text}: takes a share and their number, from 0/10 to 9/10"
            )
        return cls(int(number), int(of))

    def has(self, name: str, turn: int = 0) -> bool:
        """Whether a name is in this share, or so many turns after it."""
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        return (int.from_bytes(digest) + turn) % self.of == self.number


def mostly_long(values: Iterable[Any], short: int) -> list[Any]:
    """Values of a parameter: the short tests take the first few, the long ones the others."""
    return [
        value if number < short else pytest.param(value, marks=pytest.mark.long)
        for number, value in enumerate(values)
    ]


def long_but(values: Iterable[Any], short: Container[Any]) -> list[Any]:
    """Values of a parameter: the short tests take those of `short`, the long ones the others."""
    return [
        value if value in short else pytest.param(value, marks=pytest.mark.long) for value in values
    ]


def long_rows(rows: Iterable[tuple[Any, ...]], short: Container[Any]) -> list[Any]:
    """Rows of several parameters: the short tests take those of `short`, the long ones the rest."""
    return [row if row in short else pytest.param(*row, marks=pytest.mark.long) for row in rows]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options; see above."""
    for option, what in (
        ("--long-share", "a share of the long tests as well"),
        ("--slow-share", "of the slow tests (tests/slow.txt) this share alone"),
    ):
        parser.addoption(option, type=partial(Share.parse, option), metavar="K/N", help=what)
    parser.addoption("--write-slow", action="store_true", help="write tests/slow.txt anew")


def pytest_configure(config: pytest.Config) -> None:
    """With a share, it decides which long tests run."""
    if config.getoption("--long-share") is not None and config.option.markexpr == SHORT_ONLY:
        config.option.markexpr = ""
    if config.getoption("--write-slow") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def pytest_report_header(config: pytest.Config) -> str | None:
    """What is left out."""
    share = config.getoption("--slow-share")
    return share and f"slow tests: share {share.number}/{share.of}; --slow-share 0/1 runs all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the long and the slow tests of other shares.

    Among processes, files with long ones come first, then those with slow ones: nobody is left with
    a minute's work at the end.
    """
    shares = config.getoption("--long-share"), config.getoption("--slow-share"), None
    turns: Counter[str] = Counter()
    kept, left_out = [], []
    for item in items:
        function = function_of(item.nodeid)
        is_long = item.get_closest_marker("long") is not None
        kind = 0 if is_long else 1 if function in functions() else 2
        if (share := shares[kind]) is not None:
            group = function if is_long else file_of(function)
            turns[group] += 1
            if not share.has(group, turns[group]):
                left_out.append(item)
                continue
        kept.append((kind, item))
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workerinput"):
        kept.sort(key=itemgetter(0))
    items[:] = [item for _, item in kept]

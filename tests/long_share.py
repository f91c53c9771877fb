"""`--long-share K/N`: the short tests and one of N shares of the long ones.

N runs with K = 0 .. N-1 meet every long test once. A function's tests, which take about as long as
each other, are dealt in turn from the share that a hash of its name says.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

import pytest

SHORT_ONLY = "not long"  # what pyproject.toml asks for where nothing else is said


class Share(NamedTuple):
    """The `number`-th of so many shares."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """From "3/10". Raises UsageError for anything that is no share."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and int(number) < int(of)):
            raise pytest.UsageError(
                f"--long-share {text}: takes a share and their number, from 0/10 to 9/10"
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
    """The option; see above."""
    parser.addoption(
        "--long-share", type=Share.parse, metavar="K/N", help="a share of the long tests as well"
    )


def pytest_configure(config: pytest.Config) -> None:
    """With a share, it decides which long tests run."""
    if config.getoption("--long-share") is not None and config.option.markexpr == SHORT_ONLY:
        config.option.markexpr = ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the long tests of other shares.

    Among processes, files with long ones come first: nobody is left with a minute's work at the
    end.
    """
    share = config.getoption("--long-share")
    turns: Counter[str] = Counter()
    kept, left_out = [], []
    for item in items:
        is_long = item.get_closest_marker("long") is not None
        if share is not None and is_long:
            function = item.nodeid.partition("[")[0]
            turns[function] += 1
            if not share.has(function, turns[function]):
                left_out.append(item)
                continue
        kept.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    if hasattr(config, "workerinput"):
        kept.sort(key=lambda item: item.get_closest_marker("long") is None)
    items[:] = kept

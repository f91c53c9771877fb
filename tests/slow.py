"""Short tests that take most of the time: `make test` runs a fourth of them, another one each day.

`tests/slow.txt` names the functions whose tests take SECONDS or more on the average. It is measured
and not edited: `make test ARGS="--slow-share 0/1 --write-slow"`, on two cores without other work,
writes it anew.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import mean

import pytest

LIST = Path(__file__).with_name("slow.txt")
SECONDS = 0.3


def function_of(name: str) -> str:
    """A test's name without the values of its parameters."""
    return name.partition("[")[0]


def file_of(name: str) -> str:
    """The file of a test."""
    return name.partition("::")[0]


@cache
def functions() -> frozenset[str]:
    """What the list names."""
    return frozenset(LIST.read_text("utf-8").split())


class Recorder:
    """Writes the list at the end of a run; functions that did not run stay as they are."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds what a test took, with what is set up for it."""
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Writes the list."""
        of_function = defaultdict(list)
        for name, seconds in self._seconds.items():
            of_function[function_of(name)].append(seconds)
        slow = {name for name, each in of_function.items() if mean(each) >= SECONDS}
        kept = functions() - of_function.keys()
        LIST.write_text("".join(f"{name}\n" for name in sorted(slow | kept)), "utf-8")

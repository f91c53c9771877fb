"""A row of the table: what was measured, what it should be."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

HEAD = ("what", "measured", "target", "", "spread", "detail")


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `unit` "x" is a ratio that should reach the target; others stay below it.

    `spread` holds the least and the largest value seen; `detail` what the number was made of.
    """

    name: str
    measured: float
    target: float
    unit: str
    spread: tuple[float, float]
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the target is met."""
        return self.measured >= self.target if self.unit == "x" else self.measured <= self.target

    def cells(self) -> tuple[str, ...]:
        """The row in columns."""
        bound = "at least" if self.unit == "x" else "at most"
        low, high = self.spread
        return (
            self.name,
            f"{self.measured:.3g} {self.unit}",
            f"{bound} {self.target:g}",
            "pass" if self.passed else "FAIL",
            f"{low:.3g} .. {high:.3g}",
            self.detail,
        )

    def record(self) -> dict[str, Any]:
        """The row for JSON."""
        return asdict(self) | {"passed": self.passed}


@dataclass(frozen=True, slots=True)
class Skipped:
    """A measurement that could not be made, and why."""

    name: str
    reason: str

    def cells(self) -> tuple[str, ...]:
        """The row in columns."""
        return (self.name, "skipped", "", "", "", self.reason)

    def record(self) -> dict[str, Any]:
        """The row for JSON."""
        return asdict(self)


Rows = Iterator[Row | Skipped]


def duration(name: str, seconds: Sequence[float], target: float, unit: str) -> Row:
    """The median of repeated times, in `unit`: "us", "ms" or "s"."""
    scale = {"us": 1e6, "ms": 1e3, "s": 1.0}[unit]
    times = [scale * each for each in seconds]
    return Row(name, statistics.median(times), target, unit, (min(times), max(times)))

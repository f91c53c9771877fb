"""A row of the table: what was measured, what it should be."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.limits import Rate

HEAD = ("what", "measured", "target", "", "spread", "detail")
OURS = "ours"
KEPT: dict[str, Row] = {}
"""Rows that an earlier call has measured, by name: `python -m bench --resume` fills it, and who is
about to measure one of them hands it out instead."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. `unit` "x" is a ratio that should reach the target; others stay below it.

    `spread` holds the least and the largest value seen; `detail` what the number was made of;
    `sides` the seconds of each block by side, in the order of the first turn; `rates` what each
    side did in a second beside a limit measured in the same minute.
    """

    name: str
    measured: float
    target: float
    unit: str
    spread: tuple[float, float]
    detail: str = ""
    sides: Mapping[str, Sequence[float]] = field(default_factory=dict)
    rates: Sequence[Rate] = ()

    @property
    def passed(self) -> bool:
        """Whether the target is met, by figures that can be true."""
        met = self.measured >= self.target if self.unit == "x" else self.measured <= self.target
        return met and not self.doubts

    @property
    def doubts(self) -> list[str]:
        """What cannot be true: the rates above their limits."""
        return [rate.doubt for rate in self.rates if rate.doubt is not None]

    @property
    def blocks(self) -> int:
        """How often each side had its turn; 0 where that is not told."""
        return min(map(len, self.sides.values()), default=0)

    def cells(self) -> tuple[str, ...]:
        """The row in columns."""
        bound = "at least" if self.unit == "x" else "at most"
        low, high = self.spread
        return (
            self.name,
            f"{self.measured:.3g} {self.unit}",
            f"{bound} {self.target:g}",
            "DOUBT" if self.doubts else "pass" if self.passed else "FAIL",
            f"{low:.3g} .. {high:.3g}",
            "; ".join(filter(None, (self.detail, *self.doubts))),
        )

    def record(self) -> dict[str, Any]:
        """The row for JSON."""
        return {
            "name": self.name,
            "measured": self.measured,
            "target": self.target,
            "unit": self.unit,
            "spread": list(self.spread),
            "detail": self.detail,
            "passed": self.passed,
            "doubts": self.doubts,
            "blocks": self.blocks,
            "order": list(self.sides),
            "sides": {
                side: {
                    "median": statistics.median(taken),
                    "spread": [min(taken), max(taken)],
                    "seconds": list(taken),
                }
                for side, taken in self.sides.items()
            },
            "rates": [rate.record() for rate in self.rates],
        }

    @staticmethod
    def of_record(said: Mapping[str, Any]) -> Row:
        """The row that `record` wrote."""
        low, high = said["spread"]
        sides = {side: facts["seconds"] for side, facts in said["sides"].items()}
        rates = [
            Rate(*(each[key] for key in ("side", "value", "unit", "limit", "limited_by")))
            for each in said["rates"]
        ]
        name, measured, target, unit = (said[k] for k in ("name", "measured", "target", "unit"))
        return Row(name, measured, target, unit, (low, high), said["detail"], sides, rates)


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
        return {"name": self.name, "reason": self.reason}


Rows = Iterator[Row | Skipped]


def duration(name: str, seconds: Sequence[float], target: float, unit: str) -> Row:
    """The median of repeated times, in `unit`: "us", "ms" or "s"."""
    scale = {"us": 1e6, "ms": 1e3, "s": 1.0}[unit]
    times = [scale * each for each in seconds]
    middle, spread = statistics.median(times), (min(times), max(times))
    return Row(name, middle, target, unit, spread, sides={OURS: list(seconds)})

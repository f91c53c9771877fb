"""What the machine's threads can reach at most, measured among the blocks of a row, and the rates
of its sides beside that.

A rate above a limit of the same minute is no speed: work was counted that was not done, or a clock
was wrong, or the limit was measured badly. Which it is a table cannot tell, so the row says it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from luminal.backends.cpu.peaks import measure
from luminal.backends.cpu.target import current
from luminal.backends.cpu.team import team_size_default
from luminal.runtime.roofline import NARROW, Peaks


@dataclass(frozen=True, slots=True)
class Counted:
    """What one call of a row does: operations of arithmetic, bytes that it cannot but read from
    memory, tokens. `narrow`: products of types that have instructions of their own, which do
    NARROW times those of f32 at most.
    """

    flops: float = 0
    read_bytes: float = 0
    tokens: float = 0
    narrow: bool = False

    def __bool__(self) -> bool:
        """Whether anything is counted."""
        return bool(self.flops or self.read_bytes or self.tokens)


@dataclass(frozen=True, slots=True)
class Rate:
    """What a side does in a second, in `unit`, and the most that it can; None where that is not
    measured.
    """

    side: str
    value: float
    unit: str
    limit: float | None
    limited_by: str

    @property
    def share(self) -> float | None:
        """Of the limit."""
        return None if self.limit is None else self.value / self.limit

    @property
    def doubt(self) -> str | None:
        """What is wrong with a rate above its limit."""
        if self.limit is None or self.value <= self.limit:
            return None
        return (
            f"{self.side}: {self.value:.3g} {self.unit} is above the limit of the same minute, "
            f"{self.limit:.3g} {self.unit} by {self.limited_by}"
        )

    def __str__(self) -> str:
        of = "" if self.share is None else f" ({self.share:.0%} of {self.limited_by})"
        return f"{self.value:.3g} {self.unit}{of}"

    def record(self) -> dict[str, Any]:
        """The rate for JSON."""
        return {
            "side": self.side, "value": self.value, "unit": self.unit, "limit": self.limit,
            "limited_by": self.limited_by, "share": self.share,
        }  # fmt: skip


def measured_now(threads: int | None = None) -> Peaks:
    """The peaks of this moment, of so many threads or those that programs run on."""
    return measure(current(), threads or team_size_default())


def greatest(peaks: Sequence[Peaks]) -> Peaks:
    """The greater of each rate: whatever else runs only slows a measurement down."""
    most = peaks[0]
    for each in peaks[1:]:
        most = most.or_more(each)
    return most


def rates(counted: Counted, seconds: Mapping[str, float], peaks: Peaks) -> tuple[Rate, ...]:
    """What each side does in a second, beside the most it can: the bound that binds first."""
    return tuple(_rate(side, counted, taken, peaks) for side, taken in seconds.items())


def _rate(side: str, counted: Counted, seconds: float, peaks: Peaks) -> Rate:
    faster = NARROW if counted.narrow else 1  # what is measured is arithmetic in f32
    computing = counted.flops / (faster * peaks.flops)
    reading = counted.read_bytes / peaks.memory
    arithmetic = f"{faster} times f32's arithmetic" if counted.narrow else "arithmetic"
    least, by = max((computing, arithmetic), (reading, "reading memory"))
    if counted.tokens:
        amount, unit = counted.tokens, "tokens/s"
    elif reading > computing:
        amount, unit = counted.read_bytes / 1e9, "GB/s"
    else:
        amount, unit = counted.flops / 1e12, "TFLOP/s"
    return Rate(side, amount / seconds, unit, amount / least if least else None, by)


def has_own_arithmetic(dtype: np.dtype[Any]) -> bool:
    """Whether instructions of this machine multiply more of such numbers at a time than of f32."""
    return any(dot.a.numpy == dtype for dot in current().dots)


def beyond_cache(size: int) -> int:
    """Of so many bytes, read once in each call, those that the last cache cannot have kept."""
    return max(0, size - current().l3_bytes)


def median_of(sides: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each side's blocks."""
    return {side: statistics.median(blocks) for side, blocks in sides.items()}

"""A run with clocks in it: which thread, stream or group did what of a launch, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable


class Bar(NamedTuple):
    """What one thread, stream or group of a device did of one launch, in nanoseconds of
    `time.perf_counter_ns`. `site`: the row of the report, `trip`: of the Loops around it.
    """

    track: str
    site: int
    trip: int
    start: int
    end: int
    chunks: int = 0  # of the launch, where its backend has such


class Clocked(NamedTuple):
    """One run with clocks: the backend's code was called and returned at these nanoseconds, and
    the run `ended` when States had changed; the bars in the order they began. Not `whole`: there
    were more than are kept.
    """

    called: int
    returned: int
    ended: int
    bars: tuple[Bar, ...]
    whole: bool = True


@runtime_checkable
class Clocking(Protocol):
    """A bound program that can look at its clocks in a run."""

    def clocked(self, inputs: Sequence[Any], outputs: Sequence[Any], at: bool = False) -> Clocked:
        """Runs once, as `run` does and with the same values, or as `run_at`: where `at`, the arrays
        are addresses. Every launch waits for the one before.
        """

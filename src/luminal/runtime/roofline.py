"""The roofline: the least time a launch can take, by arithmetic or by the bytes it moves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, Protocol

Bound = Literal["compute", "cache", "memory"]
MISSED = 1.3
"""A launch may be so many times as fast as a peak that was measured: other programs slow
measurements down. One that seems faster still did less than was counted, or was not timed right."""
NARROW = 4
"""Products of 16-bit and 8-bit numbers take so many times the arithmetic of float32, at most."""


class Timed(Protocol):
    """A launch, as far as peaks are concerned."""

    @property
    def seconds(self) -> float | None:
        """The seconds that the launch took, where it was timed."""

    def limit(self, peaks: Peaks) -> tuple[Bound, float]:
        """The bound of the launch, and the least seconds it can take."""


# The greatest peaks ever measured count: whatever else runs only slows a measurement down.
class Peaks(NamedTuple):
    """What the machine's threads reach together, measured. Rates are per second."""

    flops: float  # float32 arithmetic, a fused multiply-add counts as two
    memory: float  # bytes read from memory
    cache: float  # bytes read again and again from each core's second cache
    cache_bytes: int  # a launch that moves no more may find its operands in a cache

    def limit(self, flops: int, size: int, distinct: int | None = None) -> tuple[Bound, float]:
        """What bounds launches with this work in all, and the least seconds they take. Of the bytes
        that they move, `distinct` ones are in different places; None: all.
        """
        # A turn of a Loop finds in a cache what turns before it have read, but no weights of its
        # own, of which all turns together may have more than a cache holds.
        in_cache = (size if distinct is None else distinct) <= self.cache_bytes
        computing = flops / self.flops
        moving = size / (self.cache if in_cache else self.memory)
        if computing >= moving:
            return "compute", computing
        return ("cache" if in_cache else "memory"), moving

    def share(self, work: tuple[Bound, float], seconds: float) -> float | None:
        """The least time for some work over the time taken; None where it cannot be true."""
        bound, least = work
        most = MISSED * (NARROW if bound == "compute" else 1)
        return least / seconds if least <= most * seconds else None

    def reached_by(self, launches: Iterable[Timed]) -> Peaks:
        """The peaks, those of reading not below what one of the launches reached."""
        # A measured peak is a lower bound, whatever ran beside the measurement; a launch that beat
        # it by a little has measured better, one that beat it by far was counted wrongly.
        peaks = self
        for launch in launches:
            bound, least = launch.limit(peaks)
            if bound != "compute" and launch.seconds and 1 < least / launch.seconds <= MISSED:
                peaks = peaks._replace(**{bound: getattr(peaks, bound) * least / launch.seconds})
        return peaks

    def or_more(self, other: Peaks) -> Peaks:
        """The greater of each rate."""
        rates = (self.flops, other.flops), (self.memory, other.memory), (self.cache, other.cache)
        flops, memory, cache = map(max, rates)
        return Peaks(flops, memory, cache, self.cache_bytes)

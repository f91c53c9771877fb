"""The roofline: the least time a launch can take, by arithmetic or by the bytes it moves."""

from __future__ import annotations

from typing import Literal, NamedTuple

Bound = Literal["compute", "cache", "memory"]


class Peaks(NamedTuple):
    """What the machine's threads reach together, measured. Rates are per second."""

    flops: float  # float32 arithmetic, a fused multiply-add counts as two
    memory: float  # bytes read from memory
    cache: float  # bytes read again and again from each core's second cache
    cache_bytes: int  # a launch that moves no more may find its operands in a cache

    def limit(self, flops: int, size: int, trips: int = 1) -> tuple[Bound, float]:
        """What bounds `trips` launches with this work in all, and the least seconds they take."""
        in_cache = size <= self.cache_bytes * max(trips, 1)
        computing = flops / self.flops
        moving = size / (self.cache if in_cache else self.memory)
        if computing >= moving:
            return "compute", computing
        return ("cache" if in_cache else "memory"), moving

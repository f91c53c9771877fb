"""What joins the ranks of a mesh, measured: the latency and bandwidth along each axis."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np

from luminal.base.costs import Link

SMALL, LARGE = 8, 4 << 20
"""Bytes of a message that only latency bounds, and of one that bandwidth does."""
SMALL_ROUNDS, LARGE_ROUNDS = 200, 12
WARM = 3


def measured(
    engines: Mapping[str, Any], clock: Callable[[], float] = time.perf_counter
) -> dict[str, Link]:
    """The link of each mesh axis, for the engine of each. All ranks must call it.

    Each rank sends to the next one along the axis, and the slowest rank counts: a ring's steps are
    what collectives of large values are made of.
    """
    links = {}
    for axis, engine in engines.items():
        small = _seconds(engine, SMALL, SMALL_ROUNDS, clock)
        large = _seconds(engine, LARGE, LARGE_ROUNDS, clock)
        links[axis] = Link(small, LARGE / max(large - small, 1e-9))
    return links


def _seconds(engine: Any, size: int, rounds: int, clock: Callable[[], float]) -> float:
    """The median seconds of a step of a ring, of the slowest rank."""
    source, target = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    pairs = [(rank, (rank + 1) % engine.size) for rank in range(engine.size)]
    taken = []
    for _ in range(WARM + rounds):
        start = clock()
        engine.run("permute", source, target, label="a link", pairs=pairs)
        taken.append(clock() - start)
    slowest = np.zeros(1)
    engine.run(
        "all_reduce", np.array([median(taken[WARM:])]), slowest, label="the slowest", monoid="max"
    )
    return float(slowest[0])

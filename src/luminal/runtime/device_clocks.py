"""Bars of a device's run: from the marks between launches, or from what groups of lanes wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from luminal.program.task_list import STAMPS, Stamped
from luminal.runtime.clocks import Bar, Clocked

NANO = 1e9
BEGAN, ENDED = STAMPS.index("began"), STAMPS.index("ended")


def of_marks(launches: Iterable[tuple[int, float]]) -> list[Bar]:
    """The launches of a stream one after the other, from their sites and seconds; the first begins
    at 0.
    """
    bars: list[Bar] = []
    at, trips = 0.0, Counter[int]()
    for site, seconds in launches:
        start, at = at, at + seconds * NANO
        bars.append(Bar("stream", site, trips[site], round(start), round(at)))
        trips[site] += 1
    return bars


def of_groups(calls: Sequence[Stamped], tick: float) -> list[Bar]:
    """The tasks of persistent kernels, a track for each group; the clock counts `tick` seconds."""
    bars: list[Bar] = []
    trips = Counter[int]()
    for call in calls:
        moments = call.words[..., (BEGAN, ENDED)] * (tick * NANO)
        for site, groups in zip(call.sites, moments, strict=True):
            bars += [
                Bar(f"group {group}", site, trips[site], round(began), round(ended))
                for group, (began, ended) in enumerate(groups.tolist())
            ]
            trips[site] += 1
    return bars


def aligned(bars: Sequence[Bar], called: int, returned: int) -> Clocked:
    """The bars where the last one ends as the run returned, in the order they began."""
    shift = returned - max((bar.end for bar in bars), default=returned)
    moved = [bar._replace(start=bar.start + shift, end=bar.end + shift) for bar in bars]
    return Clocked(called, returned, returned, tuple(sorted(moved, key=lambda bar: bar.start)))

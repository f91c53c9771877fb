"""When what happened: the launches of a run, the groups of a device, the steps of the compile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from luminal.base.tracing import Span
from luminal.program.launch_list import Launch, LoopLaunch, Program, barriers
from luminal.runtime.report import Report, SearchSummary

MOST = 20_000  # bars of a run: of trips behind these the page is told no more


def timeline(program: Program, report: Report) -> dict[str, Any]:
    """The tracks of a run by its profile, of the compile and of the search. Seconds from the
    beginning of each.
    """
    search = report.search
    return {
        "run": _tasks(report) or _run(program, report),
        "compile": _compile(report.compiled.spans),
        "search": [] if search is None else _search(search),
    }


def _run(program: Program, report: Report) -> list[dict[str, Any]]:
    """The launches in their order, one after the other: each takes the mean of its trips."""
    rows = report.kernels
    if any(row.seconds is None for row in rows):
        return []
    bars: list[dict[str, Any]] = []
    at = 0.0
    trips: dict[int, int] = {}
    for site, waits in _order(program, program.launches, report.dims, count()):
        if len(bars) == MOST:
            break
        row = rows[site]
        seconds = (row.seconds or 0.0) / max(row.trips, 1)
        trip = trips[site] = trips.get(site, -1) + 1
        bars.append(
            {"launch": site, "trip": trip, "track": "main", "start": at, "end": at + seconds}
            | ({"barrier": True} if waits else {})
        )
        at += seconds
    return bars


def _order(
    program: Program, launches: tuple[Launch, ...], dims: dict[str, int], sites: Iterator[int]
) -> Iterator[tuple[int, bool]]:
    """The launch sites in the order in which a run comes to them, and whether a barrier stands
    before each.
    """
    for launch, barrier in zip(launches, barriers(program, launches), strict=True):
        if not isinstance(launch, LoopLaunch):
            yield next(sites), barrier
            continue
        first = [*_order(program, launch.body, dims, sites)]
        for _ in range(int(launch.trips.evaluate(dims))):
            yield from first


def _tasks(report: Report) -> list[dict[str, Any]]:
    """What each group of a persistent kernel did: it waits until what it reads is there."""
    return [
        {
            "launch": _site(report, task.label, task.kernel),
            "trip": task.task,
            "track": f"group {task.group}",
            "start": task.came,
            "wait": task.began - task.came,
            "end": task.ended,
        }
        for task in report.tasks[:MOST]
    ]


def _site(report: Report, label: str, kernel: int) -> int:
    """The row of a task; -1 where none is alike."""
    pairs = ((row.label, row.kernel) for row in report.kernels)
    return next((n for n, pair in enumerate(pairs) if pair == (label, kernel)), -1)


def _compile(spans: Sequence[Span]) -> list[dict[str, Any]]:
    begun = min((span.start for span in spans), default=0.0)
    return [
        {
            "name": span.name,
            "start": span.start - begun,
            "end": span.start - begun + span.seconds,
            "depth": span.depth,
        }
        for span in spans
    ]


def _search(search: SearchSummary) -> list[dict[str, Any]]:
    """The moments at which a better program was known, as bars from each to the next."""
    bars, before = [], 0.0
    for best in search.history:
        told = f"best of {best.candidates} candidates: {best.best_seconds * 1e6:,.1f} us"
        bars.append({"name": told, "start": before, "end": best.seconds})
        before = best.seconds
    return bars

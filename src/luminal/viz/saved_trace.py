"""A document of a saved trace: the program that took most time, as LUMINAL_TRACE noted it.

A trace has no graph: what was compiled is named by launches and the user's lines alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from luminal.base.errors import InputError
from luminal.base.lines import NOWHERE, Line, Recorded
from luminal.runtime.roofline import Peaks
from luminal.runtime.trace import Program, Span, Trace, read
from luminal.viz.document import FORMAT, of_report
from luminal.viz.kernels import costs
from luminal.viz.sources import Sources

_NO_COLUMNS: Mapping[str, Any] = {
    name: []
    for name in (
        "op", "shape", "dtype", "inputs", "name", "loop", "module", "file", "line", "call", "ops"
    )
}  # fmt: skip


def document_of(path: str | Path, before: str | Path | None = None) -> dict[str, Any]:
    """The document of a trace's file, beside the same program of the trace `before`. Raises
    InputError for a file that is none, or without runs.
    """
    trace = _with_programs(path)
    earlier = None if before is None else (str(before), _with_programs(before))
    return document(trace, str(path), earlier)


def document(
    trace: Trace,
    title: str,
    before: tuple[str, Trace] | None = None,
    peaks: Peaks | None = None,
) -> dict[str, Any]:
    """The document of a trace in which something ran, beside the same program of an earlier one
    with a title. `peaks`: of the machine that wrote it, if it is a CPU's.
    """
    program = max(trace.programs, key=lambda one: one.total_seconds)
    report, sources = program.report(peaks if program.dispatch is None else None), Sources()
    rows = [costs(report, row) for row in report.kernels]
    of = f", of {len(trace.programs)} programs the one that took longest"
    facts = {
        "format": FORMAT,
        "title": f"{title}: {program.title}{of if len(trace.programs) > 1 else ''}",
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "luminal": program.process.luminal,
        "machine": {"cpu": program.process.host, "device": program.title},
        **of_report(report),
        "doubts": [*trace.doubts, *report.doubts],
        "values": _NO_COLUMNS,
        "stages": [],
        "kernels": _kernels(program, sources),
        "launches": [{**row, **_UNRELATED} for row in rows],
        "timeline": {
            "run": _bars(program),
            "compile": _spans(trace, is_search=False),
            "search": _spans(trace, is_search=True),
        },
        "memory": None,
        "spellings": [],
        "search": None,
        "other": None if before is None else _other(*before, program),
        "notes": dict.fromkeys(
            ("graph", "spellings", "memory", "search"),
            "a trace has no graph: luminal viz of the program itself shows this",
        ),
    }
    return {**facts, **sources.facts()}


def _with_programs(path: str | Path) -> Trace:
    """A trace in which something ran."""
    trace = read(path)
    if not trace.programs:
        raise InputError(f"viz: {path}: the trace has no program that ran, and nothing to show")
    return trace


def _other(title: str, trace: Trace, program: Program) -> dict[str, Any]:
    """What another trace tells of a program: of the one with its title and dims, or of that which
    is like it most.
    """

    def likeness(other: Program) -> tuple[bool, int, float]:
        names = {row.name for row in program.kernels} & {row.name for row in other.kernels}
        is_same = (other.title, other.dims) == (program.title, program.dims)
        return is_same and bool(other.clocked), len(names), other.total_seconds

    other = max(trace.programs, key=likeness)
    report = other.report()
    return {
        "title": f"{title}: {other.title}",
        "run_seconds": report.run_seconds,
        "launches": [costs(report, row) for row in report.kernels],
    }


_UNRELATED: Mapping[str, Any] = {
    "loop": -1, "of": [], "reads": [], "writes": [], "occupancy": None, "explained": [],
}  # fmt: skip


def _kernels(program: Program, sources: Sources) -> list[dict[str, Any]]:
    """The kernels of a program by number, with the user's lines and without texts."""
    kernels: dict[int, dict[str, Any]] = {}
    for site, row in enumerate(program.kernels):
        if row.is_collective:
            continue
        lines = (Recorded(Line(file, line, NOWHERE.function)) for file, line in row.lines)
        kernel = kernels.setdefault(
            row.kernel,
            {
                "number": row.kernel,
                "label": row.label,
                "origin": row.origin,
                "of": [],
                "lines": sources.lines(lines),
                "texts": {},
                "rows": [],
                "note": "a trace has no texts of kernels",
            },
        )
        kernel["rows"].append(site)
    return [kernels[number] for number in sorted(kernels)]


def _bars(program: Program) -> list[dict[str, Any]]:
    """What each thread, stream or group did in the last run with clocks."""
    if not program.clocked:
        return []
    run = program.clocked[-1]
    return [
        {
            "launch": bar.site,
            "trip": bar.trip,
            "track": bar.track,
            "start": bar.start - run.start,
            "end": bar.end - run.start,
        }
        for bar in run.bars
    ]


def _spans(trace: Trace, is_search: bool) -> list[dict[str, Any]]:
    """The steps of all compiles, or the candidates of searches."""
    spans: Iterable[Span] = (s for s in trace.spans if s.name.startswith("candidate") is is_search)
    return [
        {"name": s.name, "start": s.start, "end": s.end, "depth": s.depth}
        | ({"outcome": s.outcome} if s.outcome else {})
        for s in spans
    ]

"""What `luminal profile` tells of a trace: where its time went, its launches by their shares."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from luminal.runtime.report import KernelRow
from luminal.runtime.roofline import Peaks
from luminal.runtime.trace import Parts, Program, Span, Trace


class Row(NamedTuple):
    """A launch of a program: the seconds of one run, and of all runs of the process. `share` of all
    launches' time, `bound` and `roofline` where the machine's peaks are known.
    """

    program: int
    row: KernelRow
    seconds: float
    total: float
    share: float
    bound: str | None
    roofline: float | None

    @property
    def lines(self) -> str:
        """The user's lines that it computes."""
        by_file: dict[str, list[str]] = {}
        for file, number in self.row.lines:
            by_file.setdefault(file.rpartition("/")[2].rpartition("\\")[2], []).append(str(number))
        return " ".join(f"{file}:{','.join(numbers)}" for file, numbers in by_file.items())


class Totals(NamedTuple):
    """Where the seconds of all processes went. `launches`, `waiting` and `between` are parts of
    `runs`: threads at work, threads that wait within launches, and what lies before, between and
    after them.
    """

    seconds: float
    compiling: float
    searching: float
    runs: float
    launches: float
    waiting: float
    between: float


def peaks_here(trace: Trace) -> Peaks | None:
    """What this machine reaches, where the trace is of its CPU; measured now."""
    is_here = {process.host for process in trace.processes} == {platform.node()}
    if not is_here or not any(p.clocked and p.dispatch is None for p in trace.programs):
        return None
    from luminal.backends.cpu import peaks, target, team

    return peaks.peaks(target.detect(), team.team_size_default())


def rows_of(trace: Trace, peaks: Peaks | None) -> tuple[list[Row], list[str]]:
    """The launches of all programs that had runs with clocks, and what is doubtful of them."""
    told = []
    doubts = list(trace.doubts)
    for number, program in enumerate(trace.programs):
        report = program.report(peaks if program.dispatch is None else None)
        if not program.clocked:
            continue
        doubts += [f"{program.title}: {doubt}" for doubt in report.doubts]
        told += [(number, row, report.peaks, program.count) for row in report.kernels]
    whole = sum((row.seconds or 0.0) * count for _, row, _, count in told) or 1.0
    rows = [
        Row(
            number, row, row.seconds or 0.0, (row.seconds or 0.0) * count,
            (row.seconds or 0.0) * count / whole,
            row.limit(reached)[0] if reached is not None and not row.is_collective else None,
            row.roofline(reached),
        )
        for number, row, reached, count in told
    ]  # fmt: skip
    return rows, doubts


SORTS: Mapping[str, Callable[[Row], Any]] = {
    "time": lambda row: -row.total,
    "run": lambda row: -row.seconds,
    "trips": lambda row: -row.row.trips,
    "flops": lambda row: -row.row.flops,
    "bytes": lambda row: -row.row.bytes,
    "roofline": lambda row: 2.0 if row.roofline is None else row.roofline,
    "name": lambda row: row.row.name,
}
"""The orders of a table by their names."""


def totals(trace: Trace) -> Totals:
    """Where the time went; steps of a compile within others count once."""
    outer = [s for s in trace.spans if s.name.startswith("compile ") and " for " in s.name]
    searches = [s for s in trace.spans if s.name == "search"]
    searching = _seconds(searches)
    runs = sum(program.total_seconds for program in trace.programs)
    launches = waiting = 0.0
    for program in trace.programs:
        parts = program.parts
        if parts is not None and parts.whole:
            launches += program.total_seconds * (parts.launches - parts.waiting) / parts.whole
            waiting += program.total_seconds * parts.waiting / parts.whole
    return Totals(
        trace.seconds, max(_seconds(outer) - searching, 0.0), searching, runs, launches, waiting,
        runs - launches - waiting,
    )  # fmt: skip


def _seconds(spans: Sequence[Span]) -> float:
    return sum(span.end - span.start for span in spans)


class Lost(NamedTuple):
    """A launch of two traces: the seconds of one run in each, None where it has no such launch."""

    title: str
    name: str
    before: float | None
    after: float | None

    @property
    def lost(self) -> float:
        """By how many seconds a run is slower for it."""
        return (self.after or 0.0) - (self.before or 0.0)


def lost(before: Trace, after: Trace) -> list[Lost]:
    """The launches of both traces, most time lost first. Programs are the same by title and dims,
    launches by where they come from, what they do and how often that came before.
    """
    first, second = _named(before), _named(after)
    launches = [Lost(*key[:2], first.get(key), second.get(key)) for key in {**first, **second}]
    return sorted(launches, key=lambda row: -row.lost)


def _named(trace: Trace) -> dict[tuple[str, str, str, int], float]:
    named = {}
    for program in trace.programs:
        if not program.clocked:
            continue
        seen: Counter[tuple[str, str]] = Counter()
        for row in program.report().kernels:
            key = row.name, row.label
            named[titled(program), *key, seen[key]] = row.seconds or 0.0
            seen[key] += 1
    return named


def titled(program: Program) -> str:
    """A program's title and its dims."""
    dims = ", ".join(f"{name} = {n}" for name, n in program.dims.items())
    return f"{program.title}" + (f" at {dims}" if dims else "")


def facts(trace: Trace, rows: Sequence[Row], doubts: Sequence[str]) -> dict[str, Any]:
    """All of it for JSON."""
    programs = [
        {
            "title": program.title, "dims": program.dims, "pid": program.process.pid,
            "runs": program.count, "seconds": program.total_seconds,
            "run_seconds": program.run_seconds, "parts": _parts(program.parts),
            "arena_bytes": max((m.arena for m in program.memory), default=0),
        }
        for program in trace.programs
    ]  # fmt: skip
    return {
        "totals": totals(trace)._asdict(),
        "programs": programs,
        "kernels": [
            {
                "program": row.program, "name": row.row.name, "label": row.row.label,
                "kernel": row.row.kernel, "lines": row.row.lines, "trips": row.row.trips,
                "flops": row.row.flops, "bytes": row.row.bytes, "seconds": row.seconds,
                "total_seconds": row.total, "share": row.share, "bound": row.bound,
                "roofline": row.roofline,
            }
            for row in rows
        ],
        "doubts": list(doubts),
    }  # fmt: skip


def _parts(parts: Parts | None) -> dict[str, float] | None:
    return None if parts is None else parts._asdict()

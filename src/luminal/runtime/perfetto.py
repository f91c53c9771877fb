"""A trace as JSON of the Trace Event Format, which ui.perfetto.dev and chrome://tracing show.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Every
bar is a complete event (`X`) in microseconds; names of processes and threads are metadata (`M`),
bytes of memory counters (`C`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from luminal.runtime.trace import Process, Program, Trace

MICRO = 1e6
TRACKS = 1 << 32
"""Numbers of tracks that are no threads of the system begin here."""

Event = dict[str, Any]


def events(trace: Trace) -> str:
    """The whole trace. A process has a track for each thread, with compiles, searches and runs, and
    one for each member of a team, stream or group, with the launches of runs that had clocks.
    """
    numbers = {id(process): number for number, process in enumerate(trace.processes, 1)}
    told: list[Event] = []
    for process in trace.processes:
        told += _names(process, numbers[id(process)])
    for span in trace.spans:
        facts = {"ended": span.ended} | ({"outcome": span.outcome} if span.outcome else {})
        pid = numbers[id(span.process)]
        told.append(_bar(pid, span.thread, span.name, "step", span.start, span.end, facts))
    tracks: dict[tuple[int, str], int] = {}
    for program in trace.programs:
        told += _runs(program, numbers[id(program.process)], tracks)
    told += [
        _metadata("thread_name", pid, number, track) for (pid, track), number in tracks.items()
    ]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": told})


def _names(process: Process, number: int) -> Iterator[Event]:
    command = " ".join(process.command)
    rank = f"{process.rank}, " if process.rank else ""
    yield _metadata("process_name", number, 0, f"{rank}{process.pid} on {process.host}: {command}")
    for thread, name in process.threads.items():
        yield _metadata("thread_name", number, thread, name)


def _runs(program: Program, pid: int, tracks: dict[tuple[int, str], int]) -> Iterator[Event]:
    dims = ", ".join(f"{name} = {n}" for name, n in program.dims.items())
    title = f"run {program.title}" + (f" at {dims}" if dims else "")
    for run in program.runs:
        end = run.start + run.seconds
        yield _bar(pid, run.thread, title, "run", run.start, end, {"queued": run.queued})
    for clocked in program.clocked:
        facts: Event = {"clocks": True, "whole": clocked.whole}
        yield _bar(pid, clocked.thread, title, "run", clocked.start, clocked.end, facts)
        for bar in clocked.bars:
            track = tracks.setdefault((pid, bar.track), TRACKS + len(tracks))
            row = program.kernels[bar.site]
            facts = {
                "label": row.label, "kernel": row.kernel, "trip": bar.trip, "chunks": bar.chunks,
                "program": program.title, "lines": [f"{file}:{n}" for file, n in row.lines],
            }  # fmt: skip
            yield _bar(pid, track, row.name, "launch", bar.start, bar.end, facts)
    for memory in program.memory:
        held = {"arena": memory.arena, "scratch": memory.scratch, "derived": memory.derived}
        name = f"bytes of {program.title}"
        yield {
            "ph": "C", "name": name, "pid": pid, "tid": 0, "ts": memory.at * MICRO, "args": held,
        }  # fmt: skip


def _bar(pid: int, tid: int, name: str, kind: str, start: float, end: float, facts: Event) -> Event:
    return {
        "ph": "X", "name": name, "cat": kind, "pid": pid, "tid": tid, "ts": start * MICRO,
        "dur": max(end - start, 0.0) * MICRO, "args": facts,
    }  # fmt: skip


def _metadata(kind: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}

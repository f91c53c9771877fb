"""Timing spans of a compile, for reports and for LUMINAL_TRACE; and what LUMINAL_DEBUG prints.

    with tracing.record() as spans:
        with tracing.span("lower"):
            ...
    spans[0].name, spans[0].seconds, spans[0].depth

A span outside `record` is only in the file that LUMINAL_TRACE names, if any.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from luminal.base import config, trace_file
from luminal.base.records import dataclass


@dataclass(slots=True)
class Span:
    """One timed step: `depth` counts the spans around it; `seconds` is set when it ends. It began
    at `start`, in seconds of `time.perf_counter`.
    """

    name: str
    depth: int
    seconds: float = 0.0
    start: float = 0.0


@dataclass(slots=True)
class _Recording:
    spans: list[Span]
    depth: int = 0


_current: ContextVar[_Recording | None] = ContextVar("luminal_trace", default=None)


@contextmanager
def record() -> Iterator[list[Span]]:
    """Collect the spans of the block, in the order they began; an inner `record` takes its own."""
    recording = _Recording([])
    token = _current.set(recording)
    try:
        yield recording.spans
    finally:
        _current.reset(token)


@contextmanager
def span(name: str) -> Iterator[None]:
    """Time the block under `name`, nested in the span around it."""
    recording, file = _current.get() or _Recording([]), trace_file.current()
    entry = Span(name, recording.depth)
    recording.spans.append(entry)
    recording.depth += 1
    if file is not None:
        file.write(begin=name, at=time.perf_counter_ns())
    start = entry.start = time.perf_counter()
    try:
        yield
    finally:
        entry.seconds = time.perf_counter() - start
        recording.depth -= 1
        if file is not None:
            file.write(end=name, at=time.perf_counter_ns())


def self_seconds(spans: list[Span]) -> dict[str, float]:
    """Seconds by name, each span's without those of the spans inside it: they add up."""
    totals: dict[str, float] = {}
    around: list[Span] = []
    for entry in spans:
        # Spans come in the order they began, so those around one are the last of each smaller
        # depth.
        del around[entry.depth :]
        if around:
            totals[around[-1].name] -= entry.seconds
        totals[entry.name] = totals.get(entry.name, 0.0) + entry.seconds
        around.append(entry)
    return totals


def summary(spans: list[Span]) -> str:
    """The spans as an indented text, a line each, in milliseconds."""
    width = max((2 * entry.depth + len(entry.name) for entry in spans), default=0)
    lines = []
    for entry in spans:
        name = "  " * entry.depth + entry.name
        lines.append(f"{name:<{width}}  {entry.seconds * 1e3:8.2f} ms")
    return "\n".join(lines)


def debug(level: int, text: str) -> None:
    """Print `text` to stderr where LUMINAL_DEBUG is at least `level` (see config.DEBUG_LADDER)."""
    if config.get("LUMINAL_DEBUG") >= level:
        print(text, file=sys.stderr)

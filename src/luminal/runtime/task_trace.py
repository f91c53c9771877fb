"""What the groups of persistent kernels did and when: read from their words, told, drawn.

A group comes to a task, asks for what it may ask early, waits for what the task needs, works and
says that it ended. The time it waits is lost but for what it asked for; the time before is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from luminal.program.task_list import STAMPS, Stamped
from luminal.runtime.report import KernelRow, TaskTime
from luminal.runtime.report_text import duration

MICRO = 1e6
CAME = STAMPS.index("came")
"""Of a group's words the first that is a time, as all behind it."""
RUN = 1  # the number of the one process that a trace tells of


def tasks(calls: Sequence[Stamped], rows: Sequence[KernelRow], tick: float) -> tuple[TaskTime, ...]:
    """The tasks of a run, a row for each group of each; the clock counts `tick` seconds."""
    if not calls:
        return ()
    first = min(int(call.words[..., CAME].min()) for call in calls)
    timed: list[TaskTime] = []
    number = 0
    for call in calls:
        seconds = (call.words[..., CAME:] - first) * tick
        for site, units, times in zip(call.sites, call.words[..., 0], seconds, strict=True):
            row = rows[site]
            for group, (unit, moments) in enumerate(zip(units, times, strict=True)):
                came, began, ended = map(float, moments)
                said = row.label, row.kernel, group, int(unit), came, began, ended, row.origin
                timed.append(TaskTime(number, *said))
            number += 1
    return tuple(timed)


def summary(rows: Sequence[TaskTime]) -> str:
    """How long the tasks took, and what part of their groups' time was work or waiting."""
    groups = {row.group for row in rows}
    whole = max(row.ended for row in rows) - min(row.came for row in rows)
    total = whole * len(groups) or 1.0
    works, waits = (
        sum(seconds) / total
        for seconds in (
            [row.ended - row.began for row in rows],
            [row.began - row.came for row in rows],
        )
    )
    return (
        f"{len({row.task for row in rows})} tasks by {len(groups)} groups on "
        f"{len({row.unit for row in rows})} units in {duration(whole)}: groups are at work for "
        f"{works:.0%} of it, wait for {waits:.0%}"
    )


def events(rows: Iterable[TaskTime]) -> str:
    """The trace event format: a row for each group, a bar for each task and each wait before one;
    times in microseconds.
    """
    told: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": RUN, "args": {"name": "persistent kernels"}}
    ]
    units: dict[int, int] = {}
    for row in rows:
        units.setdefault(row.group, row.unit)
        told += [
            _bar(row, "wait", row.came, row.began),
            _bar(row, row.origin or row.label or f"k{row.kernel}", row.began, row.ended),
        ]
    told += [
        {"ph": "M", "name": "thread_name", "pid": RUN, "tid": group,
         "args": {"name": f"group {group}, unit {unit}"}}
        for group, unit in units.items()
    ]  # fmt: skip
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": told})


def _bar(row: TaskTime, name: str, start: float, end: float) -> dict[str, object]:
    return {
        "ph": "X", "name": name, "cat": "wait" if name == "wait" else "task", "pid": RUN,
        "tid": row.group, "ts": start * MICRO, "dur": (end - start) * MICRO,
        "args": {"task": row.task, "kernel": row.kernel, "unit": row.unit},
    }  # fmt: skip

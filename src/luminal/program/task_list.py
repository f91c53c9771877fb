"""The list of tasks that a persistent kernel walks: what each waits for, and how it lies in memory.

A list is a row of 64-bit words: a header, a record for each task, then the numbers of the tasks
that are waited for. Kernels read it as `codegen/c_family/persistent.py` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

WORD = 8  # bytes
HEADER = ("tasks", "waits", "times")
"""The words before the records: how many there are, at which word the waits begin, and the address
where times are written, 0 where nobody asks for them.
"""
STAMPS = ("unit", "came", "began", "ended")
"""The words that a group writes for a task, where times are asked for; groups stand side by side,
and a task's behind those of the one before it.
"""
RECORD = ("kernel", "workers", "first_wait", "last_wait", "integers", "scratch")
"""The words of a record before the addresses of its operands."""


class Span(NamedTuple):
    """Bytes that a task touches."""

    start: int
    end: int
    is_written: bool


class Stamped(NamedTuple):
    """What the groups of a kernel wrote: words by task, group and stamp, and the launch sites that
    its tasks are.
    """

    sites: Sequence[int]
    words: Array


class Record(NamedTuple):
    """A task: the number of its kernel, of its workers, and addresses, 0 where it has none."""

    kernel: int
    workers: int
    integers: int
    scratch: int
    operands: Sequence[int]


def waits(tasks: Sequence[Sequence[Span]]) -> list[list[int]]:
    """For each task the earlier ones that it waits for, by what each touches."""
    awaited: list[list[int]] = []
    ended: list[set[int]] = []  # before each task begins, by its waits and theirs
    for number, spans in enumerate(tasks):
        mine: list[int] = []
        before: set[int] = set()
        for other in reversed(range(number)):
            if other not in before and _meet(spans, tasks[other]):
                mine.append(other)
                before |= {other, *ended[other]}
        awaited.append(mine)
        ended.append(before)
    return awaited


def _meet(some: Sequence[Span], others: Sequence[Span]) -> bool:
    return any(
        (a.is_written or b.is_written) and a.start < b.end and b.start < a.end
        for a in some
        for b in others
    )


def words(records: Sequence[Record], awaited: Sequence[Sequence[int]], size: int) -> Array:
    """The list in memory, of tasks that wait for those that `awaited` says; a record has `size`
    words.
    """
    rows = np.zeros((len(records), size), np.int64)
    first = 0
    for row, record, before in zip(rows, records, awaited, strict=True):
        last = first + len(before)
        head = (record.kernel, record.workers, first, last, record.integers, record.scratch)
        filled = [*head, *record.operands]
        row[: len(filled)] = filled
        first = last
    header = [len(records), len(HEADER) + rows.size, 0]
    flat = [number for before in awaited for number in before]
    return np.array([*header, *rows.reshape(-1), *flat], np.int64)

"""Launches that follow each other as the tasks of one kernel (`codegen/c_family/persistent.py`).

A task waits for those before it that touch memory which it touches, if one of the two writes it:
memory, not buffers, since those of the arena lie where others lay, and launches take turns with
their scratch memory. What a task that is waited for has waited for itself needs no wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from luminal.base.dtypes import uint8
from luminal.kernel.tile_ir import Role
from luminal.memory.arrays import Array
from luminal.program.launch_list import KernelLaunch, Program, kernel_launches, walk
from luminal.runtime.device import Device, DeviceBuffer
from luminal.runtime.driver import Call, DevicePointer, Driver, TogetherCode
from luminal.runtime.exchange import Exchange

HEADER = 2
WARP = 32


class Span(NamedTuple):
    """Bytes that a task touches."""

    start: int
    end: int
    is_written: bool


class Task(NamedTuple):
    """A launch with the number of its kernel among those of the code, and what it touches."""

    kernel: int
    call: Call
    spans: tuple[Span, ...]


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


def kernels_together(program: Program, lanes: Sequence[int], can_idle: bool) -> tuple[int, ...]:
    """The numbers of the kernels of a program, of so many lanes each, that can be one: where lanes
    `can_idle` all of whole warps, else those whose groups have as many as most launches of groups
    have; and those whose workers are threads.
    """
    used = [launch.kernel for launch in kernel_launches(program.launches)]
    if can_idle:  # a barrier of some lanes of a group counts warps
        return tuple(sorted({k for k in used if lanes[k] == 1 or lanes[k] % WARP == 0}))
    most = Counter(lanes[kernel] for kernel in used if lanes[kernel] > 1).most_common(1)
    fitting = {1, *(n for n, _ in most)}
    return tuple(sorted({kernel for kernel in used if lanes[kernel] in fitting}))


class Joined(NamedTuple):
    """A list of calls, those that follow each other as one; `held` is the memory of their lists."""

    calls: list[Call | Exchange]
    held: list[DeviceBuffer]


class Joiner:
    """Makes one call of calls that follow each other, for a program on a device whose driver has
    made `code` of the kernels `numbers`.
    """

    def __init__(self, program: Program, numbers: Sequence[int], code: TogetherCode) -> None:
        self._program = program
        self._number = {kernel: place for place, kernel in enumerate(numbers)}
        self._code = code
        self._launches = [*walk(program.launches)]

    def joined(
        self,
        device: Device,
        listed: Sequence[tuple[int, Call | Exchange]],
        places: Mapping[int, DevicePointer],
        sizes: Mapping[int, int],
        scratch: int,
    ) -> Joined:
        """The calls of a list as fewer; `places` and `sizes` in bytes are those of buffers, and
        `scratch` the bytes of all launches' working memory.
        """
        out, driver = Joined([], []), device.driver
        groups = driver.workers_of(self._code)
        for can_join, some in groupby(listed, key=self._can_join):
            calls = [*some]
            if not can_join or len(calls) == 1:
                out.calls.extend(call for _, call in calls)
                continue
            tasks = [self._task(driver, *call, places, sizes, scratch) for call in calls]
            words, counts = self.words(driver, tasks), np.zeros(len(tasks) + 1, np.uint32)
            lists = [device.empty((array.nbytes,), uint8) for array in (words, counts)]
            with device.entered():
                for memory, array in zip(lists, (words, counts), strict=True):
                    driver.write(memory.place, array)
            out.held.extend(lists)
            places_of_lists = [memory.place for memory in lists]
            out.calls.append(Call(self._code, groups, places_of_lists, None, None))
        return out

    def _can_join(self, listed: tuple[int, Call | Exchange]) -> bool:
        launch = self._launches[listed[0]]
        return isinstance(launch, KernelLaunch) and launch.kernel in self._number

    def _task(
        self,
        driver: Driver,
        site: int,
        call: Call | Exchange,
        places: Mapping[int, DevicePointer],
        sizes: Mapping[int, int],
        scratch: int,
    ) -> Task:
        launch = self._launches[site]
        assert isinstance(launch, KernelLaunch)
        assert isinstance(call, Call)
        program, spans = self._program, []
        operands = zip(launch.operands, call.operands, program.roles(launch), strict=True)
        for operand, place, role in operands:
            # A Loop's operand is one of several buffers, of which the place tells; where several
            # lie there it touches all of them.
            at = driver.address(place)
            for number in {program.table[entry] for entry in program.entries(operand)}:
                start = driver.address(places[number])
                if start <= at < start + max(1, sizes[number]):
                    spans.append(Span(start, start + sizes[number], role is not Role.IN))
        if call.scratch is not None:
            start = driver.address(call.scratch)
            spans.append(Span(start, start + scratch, True))
        return Task(self._number[launch.kernel], call, tuple(spans))

    def words(self, driver: Driver, tasks: Sequence[Task]) -> Array:
        """The list as it lies in memory: the header, records, waits."""
        awaited = waits([task.spans for task in tasks])
        size = self._code.words
        records = np.zeros((len(tasks), size), np.int64)
        first = 0
        for record, task, before in zip(records, tasks, awaited, strict=True):
            call = task.call
            pointers = (call.integers, call.scratch)
            head = (task.kernel, call.workers, first, first + len(before))
            operands = [driver.address(place) for place in call.operands]
            beside = [0 if place is None else driver.address(place) for place in pointers]
            row = [*head, *beside, *operands]
            record[: len(row)] = row
            first += len(before)
        flat = [number for before in awaited for number in before]
        header = [len(tasks), HEADER + records.size]
        return np.concatenate([header, records.reshape(-1), np.array(flat, np.int64)]).astype(
            np.int64
        )


def joiner(program: Program, lanes: Sequence[int], driver: Driver) -> Joiner | None:
    """What joins the launches of a program whose kernels have so many lanes; None where the device
    or the program has nothing of the kind.
    """
    numbers = kernels_together(program, lanes, driver.lanes_can_idle)
    kernels = [program.kernels[number] for number in numbers]
    code = driver.together(kernels) if numbers else None
    return None if code is None else Joiner(program, numbers, code)

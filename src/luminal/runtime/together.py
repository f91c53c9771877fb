"""Launches that follow each other as the tasks of one kernel (`codegen/c_family/persistent.py`).

A task waits for those before it that touch memory which it touches, if one of the two writes it:
memory, not buffers, since those of the arena lie where others lay, and launches take turns with
their scratch memory. What a task that is waited for has waited for itself needs no wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from luminal.base.dtypes import uint8
from luminal.kernel.tile_ir import Role, Space
from luminal.program.launch_list import KernelLaunch, Program, kernel_launches, walk
from luminal.program.task_list import HEADER, STAMPS, WORD, Record, Span, Stamped, waits, words
from luminal.runtime.device import Device, DeviceBuffer
from luminal.runtime.driver import Call, DevicePointer, Driver, TogetherCode
from luminal.runtime.exchange import Exchange


class Task(NamedTuple):
    """A launch as a task, and what it touches."""

    record: Record
    spans: tuple[Span, ...]


def kernels_together(program: Program, lanes: Sequence[int], warp: int) -> tuple[int, ...]:
    """The numbers of the kernels of a program, of so many lanes each, that can be one: where each
    `warp` of a group may be idle all that have whole ones, else those whose groups have as many
    lanes as most launches of groups have; and those whose workers are threads. A library's is none,
    nor is one that allocates tensor memory: it may wait for a group that waits for it.
    """
    launches = kernel_launches(program.launches)
    used = [launch.kernel for launch in launches if lanes[launch.kernel]]
    kernels, tensor = program.kernels, Space.TENSOR
    used = [k for k in used if all(buffer.space is not tensor for buffer in kernels[k].scratch)]
    if warp:
        return tuple(sorted({k for k in used if lanes[k] == 1 or lanes[k] % warp == 0}))
    most = Counter(lanes[kernel] for kernel in used if lanes[kernel] > 1).most_common(1)
    fitting = {1, *(n for n, _ in most)}
    return tuple(sorted({kernel for kernel in used if lanes[kernel] in fitting}))


class Joining(NamedTuple):
    """Launches as one call: the sites that its tasks are, its groups, and the memory of their list
    and counters.
    """

    sites: Sequence[int]
    groups: int
    listing: DeviceBuffer
    counters: DeviceBuffer


class Joined(NamedTuple):
    """A list of calls, those that follow each other as one."""

    calls: list[Call | Exchange]
    joinings: list[Joining]

    def put_timed(self, driver: Driver) -> list[Stamped]:
        """Queues the calls, and has groups tell times: they are there once somebody has waited."""
        asked, blocks = [], []
        at = [
            DevicePointer(joining.listing.block, WORD * HEADER.index("times"))
            for joining in self.joinings
        ]
        for joining, place in zip(self.joinings, at, strict=True):
            words = np.zeros((len(joining.sites), joining.groups, len(STAMPS)), np.int64)
            block = DevicePointer(driver.allocate(words.nbytes))
            driver.write(block, words)
            driver.write(place, np.array([driver.address(block)]))
            asked.append(Stamped(joining.sites, words))
            blocks.append(block)
        for call in self.calls:
            driver.put(call)
        for place, block, stamped in zip(at, blocks, asked, strict=True):
            driver.write(place, np.zeros(1, np.int64))
            driver.fetch(block, stamped.words)
            driver.free(block.block)
        return asked


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
        listed: Sequence[tuple[int, Any]],
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
            awaited = waits([task.spans for task in tasks])
            listing = words([task.record for task in tasks], awaited, self._code.words)
            arrays = listing, np.zeros(len(tasks) + 1, np.uint32)  # and a counter for each
            held = [device.empty((array.nbytes,), uint8) for array in arrays]
            with device.entered():
                for memory, array in zip(held, arrays, strict=True):
                    driver.write(memory.place, array)
            out.joinings.append(Joining([site for site, _ in calls], groups, *held))
            at = [memory.place for memory in held]
            out.calls.append(Call(self._code, groups, at, None, None))
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
        # Behind the operands stand maps of some, in memory that nobody writes any more.
        places_of = call.operands[: len(launch.operands)]
        operands = zip(launch.operands, places_of, program.roles(launch), strict=True)
        for operand, place, role in operands:
            # A Loop's operand is one of several buffers, of which the place tells; where several
            # lie there it touches all of them.
            at = driver.address(place)
            for number in {program.table[entry] for entry in program.entries(operand)}:
                start = driver.address(places[number])
                if start <= at < start + max(1, sizes[number]):
                    spans.append(Span(start, start + sizes[number], role is not Role.IN))
        integers, memory = (
            0 if place is None else driver.address(place) for place in (call.integers, call.scratch)
        )
        if memory:
            spans.append(Span(memory, memory + scratch, True))
        addresses = [*map(driver.address, call.operands)]
        number = self._number[launch.kernel]
        return Task(Record(number, call.workers, integers, memory, addresses), tuple(spans))


def joiner(program: Program, lanes: Sequence[int], driver: Driver) -> Joiner | None:
    """What joins the launches of a program whose kernels have so many lanes; None where the device
    or the program has nothing of the kind.
    """
    numbers = kernels_together(program, lanes, driver.warp)
    kernels = [program.kernels[number] for number in numbers]
    code = driver.together(kernels) if numbers else None
    return None if code is None else Joiner(program, numbers, code)

"""What a run takes by each way of giving launches to a device, predicted from its chip's facts.

As a graph launches follow one another, each when all before it has ended; what a kernel asks for
early passes in between. As one kernel each group walks the list of tasks with its waits: it begins
when the counters of what a task needs have come to it, with less to fetch by what it asked for
while it waited and memory was idle. So groups that have no chunk of a task, or fewer, go ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from luminal.base.records import dataclass
from luminal.expand.ir import Kernel
from luminal.kernel.tile_ir import Role
from luminal.program import memory_plan
from luminal.program.launch_list import CollectiveLaunch, KernelLaunch, Launch, LoopLaunch, Program
from luminal.program.task_list import Span, waits
from luminal.runtime.together import kernels_together
from luminal.schedule.groups.bounds import CACHED, Bounds, bounds, resident
from luminal.schedule.groups.chip import Chip
from luminal.schedule.groups.counts import Work

Seconds = NDArray[np.float64]

BETWEEN = 1e-6
"""From the end of a launch to the start of the next, in a recorded list: a usual figure."""
HANDOVER = 2.5 * CACHED
"""From the end of a task to the start of what waits for it: what the group has written comes to the
last cache, the count goes there, and who asks for it finds it half a question later, and hears.
"""
MOST_TASKS = 4096  # of a list that is walked: who waits for whom is asked of all pairs


@dataclass(frozen=True, slots=True)
class Predicted:
    """Seconds of a run, and their parts: what `memory` takes for all bytes, what launches take
    `beyond` that, what lies `between` them less what was overlapped, and what came `early`.
    """

    seconds: float
    memory: float
    beyond: float
    early: float
    tasks: int
    groups: int = 0  # that a unit holds, of one kernel

    @property
    def between(self) -> float:
        """What is left: starts and ends of launches, or waits of groups."""
        return self.seconds - self.memory - self.beyond + self.early

    def __str__(self) -> str:
        parts = (self.memory, self.beyond, self.between, self.early)
        memory, beyond, between, early = (f"{part * 1e6:.3g}" for part in parts)
        held = f", {self.groups} groups a unit" if self.groups else ""
        return (
            f"{self.seconds * 1e6:,.4g} us: memory {memory}, kernels beyond it {beyond}, between "
            f"{self.tasks} of them {between}, less {early} asked for early{held}"
        )


class Task(NamedTuple):
    """A launch of one run: its kernel, chunks and bytes, and what memory it touches; of a library's
    call the seconds in place of the chunks' `work`.
    """

    kernel: int
    chunks: int
    size: float
    work: Work | float
    spans: Sequence[Span]


class Model:
    """A program at some values of its dims on a chip, whose units hold `most` groups at most.
    `counted` gives a kernel as it is expanded, and the work of a chunk; `called` the seconds in
    which a library does so many operations and moves so many bytes.
    """

    def __init__(
        self,
        program: Program,
        dims: Mapping[str, int],
        chip: Chip,
        most: int,
        counted: Callable[[int, Mapping[str, int]], tuple[Kernel, Work]],
        called: Callable[[float, float], float],
    ) -> None:
        self._program, self._dims, self._chip, self._most = program, dims, chip, most
        self._counted, self._called = counted, called
        self._places = self._placed()
        self._known: dict[tuple[int, tuple[int, ...]], tuple[Kernel, Work, int]] = {}
        self._kernels: dict[int, Kernel] = {}
        self.tasks = [*self._walk(program.launches)]

    def as_graph(self) -> Predicted:
        """Launches that follow one another."""
        seconds = memory = beyond = early = 0.0
        for task in self.tasks:
            part = self._bounds(task, self._most)
            hidden = min(part.early, BETWEEN) if self._chip.is_chained else 0.0
            taken = _after(part, hidden)
            seconds += BETWEEN + taken
            memory, beyond = memory + part.memory, beyond + part.seconds - part.memory
            early += part.seconds - taken
        return Predicted(seconds, memory, beyond, early, len(self.tasks))

    def as_one(self, warp: int) -> Predicted | None:
        """Tasks of one kernel, and of those of its launches that cannot be, by themselves; None
        where none can. `warp`: as many lanes of a group may be idle, or none where it is 0.
        """
        lanes = [self._kernels[n].lanes if n in self._kernels else 0 for n in range(self._count)]
        joined = {n for n in kernels_together(self._program, lanes, warp) if n in self._kernels}
        works = [
            task.work
            for task in self.tasks
            if task.kernel in joined and not isinstance(task.work, float)
        ]
        if not works:
            return None
        held = resident(_largest(works), self._chip, self._most)
        awaited = waits([task.spans for task in self.tasks])
        line = Walkers(held * self._chip.units, self._chip)
        memory = beyond = 0.0
        first = 0  # of the tasks of this kernel: what ran before it has ended
        for number, (task, before) in enumerate(zip(self.tasks, awaited, strict=True)):
            is_task = task.kernel in joined
            part = self._bounds(task, held if is_task else self._most)
            line.run(task, part, [n for n in before if n >= first] if is_task else None)
            first = first if is_task else number + 1
            memory, beyond = memory + part.memory, beyond + part.seconds - part.memory
        return Predicted(line.end, memory, beyond, line.early, len(self.tasks), held)

    @property
    def _count(self) -> int:
        return len(self._program.kernels)

    def _bounds(self, task: Task, held: int) -> Bounds:
        if isinstance(task.work, float):
            return Bounds(0.0, 0.0, 0.0, task.size / self._chip.memory, task.work, 1)
        return bounds(task.work, self._chip, task.chunks, task.size, held)

    def _walk(self, launches: tuple[Launch, ...]) -> Iterator[Task]:
        """The launches of a run, Loops written out."""
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                for _ in range(int(launch.trips.evaluate(self._dims))):
                    yield from self._walk(launch.body)
            elif isinstance(launch, KernelLaunch):
                yield self._task(launch)

    def _task(self, launch: KernelLaunch) -> Task:
        # Of what moves with a Loop all its places: a trip waits for the one before it anyway.
        spans = [
            self._places[number]._replace(is_written=role is not Role.IN)
            for number, role in self._program.accesses(launch)
        ]
        flops, size = (float(n.evaluate(self._dims)) for n in (launch.flops, launch.bytes))
        if self._program.kernels[launch.kernel].call is not None:
            return Task(launch.kernel, 0, size, self._called(flops, size), spans)
        values = tuple(int(value.evaluate(self._dims)) for value in launch.params)
        key = launch.kernel, values
        if key not in self._known:
            names = (symbol.name for symbol in self._program.kernels[launch.kernel].params)
            params = dict(zip(names, values, strict=True))
            kernel, work = self._counted(launch.kernel, params)
            self._known[key] = kernel, work, int(kernel.chunks.evaluate(params))
        kernel, work, chunks = self._known[key]
        self._kernels[launch.kernel] = kernel
        if kernel.scratch:
            spans.append(Span(-2, -1, True))  # launches take turns with it
        return Task(launch.kernel, chunks, size, work, spans)

    def _placed(self) -> dict[int, Span]:
        """Where each buffer lies: those of the arena in it, all others side by side."""
        program = self._program
        sizes = [max(1, int(buffer.bytes.evaluate(self._dims))) for buffer in program.buffers]
        plan = memory_plan.plan(program, program.launches)
        placement = memory_plan.place(plan, [sizes[number] for number in plan.buffers])
        starts = dict(zip(plan.buffers, map(int, placement.offsets), strict=True))
        end = placement.arena_bytes
        for number, size in enumerate(sizes):
            if number not in starts:
                starts[number] = end
                end += size
        return {n: Span(start, start + sizes[n], False) for n, start in starts.items()}


class Walkers:
    """The groups of a persistent kernel, each at its own time in the list of tasks."""

    def __init__(self, count: int, chip: Chip) -> None:
        self.count, self._chip = count, chip
        self._now: Seconds = np.full(count, BETWEEN)
        self._done: list[float] = []  # of each task, when its last group ended
        self._memory = 0.0  # is at work until then
        self.early = 0.0
        # Counts that come to one place are added up one by one.
        self._handover = HANDOVER + count / chip.hertz

    @property
    def end(self) -> float:
        """When the last task has ended."""
        return max(self._done, default=0.0)

    def run(self, task: Task, part: Bounds, awaited: Sequence[int] | None) -> None:
        """Passes a task, which waits for these; None: a launch of its own, for all before it."""
        if awaited is None:
            begun = self.end + BETWEEN
            self._memory = begun + part.memory
            self._done.append(begun + part.seconds)
            self._now = np.full(self.count, self.end + BETWEEN)  # another kernel begins behind it
            return
        chunks = np.maximum(0, -(-(task.chunks - np.arange(self.count)) // self.count))
        ready = max((self._done[number] for number in awaited), default=-np.inf)
        start = np.maximum(self._now, ready + self._handover if awaited else 0.0)
        # While a group waits, and nobody else is served, what it asked for comes.
        idle = np.clip(start - np.maximum(self._now, self._memory), 0.0, part.early)
        hidden = float(idle[chunks > 0].min(initial=part.early))
        most = max(1, int(chunks.max()))
        late = part.late * chunks / most
        served = np.minimum(chunks * self.count, task.chunks) / max(1, task.chunks) * part.memory
        taken = np.where(chunks > 0, np.maximum(served - hidden, late), 0.0)
        self._now = start + taken
        whole = float((start + np.where(chunks > 0, np.maximum(served, late), 0.0)).max())
        self.early += whole - float(self._now.max())
        self._memory = max(self._memory, float(start.min()) + part.memory - hidden)
        self._done.append(float(self._now.max()))


def _after(part: Bounds, hidden: float) -> float:
    """What a launch takes where so many seconds of its memory are over when it begins."""
    return max(part.memory - hidden, part.late)


def _largest(works: Sequence[Work]) -> Work:
    """What a group takes that has to do for all of these."""
    lanes, registers, shared = (
        max(getattr(work, name) for work in works)
        for name in ("lanes", "registers", "shared_bytes")
    )
    return Work(lanes, registers, shared, {}, {}, ())


def is_short(program: Program, dims: Mapping[str, int]) -> bool:
    """Has a run so few launches that they can be walked, and nothing that ranks do together?"""

    def count(launches: tuple[Launch, ...]) -> float:
        total = 0.0
        for launch in launches:
            if isinstance(launch, CollectiveLaunch):
                return float("inf")
            inner = count(launch.body) if isinstance(launch, LoopLaunch) else 1.0
            trips = launch.trips.evaluate(dims) if isinstance(launch, LoopLaunch) else 1
            total += float(trips) * inner
        return total

    return count(program.launches) <= MOST_TASKS

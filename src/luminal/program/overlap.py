"""Collectives beside kernels: each begins as early and is waited for as late as it may be.

A collective becomes a start, right after what makes its operand, and a wait, right before the first
launch that reads its result or writes its operand. Starts keep their order, which all ranks share:
none passes another one, nor a Loop with collectives inside. Both ends stay in one list, so those of
a Loop's body lie in one trip.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from luminal.kernel.tile_ir import Role
from luminal.program import memory_plan
from luminal.program.launch_list import CollectiveLaunch, Launch, LoopLaunch, Program, collects

GROWTH = 1.25  # times the arena without overlap, where no limit is given
REACHES = (1 << 30, 256, 64, 16, 4)
"""Launches that an end moves past, at most: fewer are tried where the arena would grow too much."""


# An operand lives to the wait, and a result from the start on: what hides time takes memory. How
# much, only the memory plan knows, so it is asked.
def overlapped(program: Program, limit: int | None = None) -> Program:
    """The program with collectives that run while kernels do; the same object if it has none.

    `limit`: bytes of the arena at the upper ends of all dims, or as many as without overlap where
    those are more. By default the arena grows to GROWTH times that.
    """
    if not any(map(collects, program.launches)):
        return program
    before = _arena(program)
    most = round(GROWTH * before) if limit is None else max(limit, before)
    for reach in REACHES:
        launches = _Moves(program, reach).moved(program.launches)
        candidate = replace(program, launches=launches)
        if _arena(candidate) <= most:
            return candidate
    return program


def _arena(program: Program) -> int:
    plan = memory_plan.plan(program, program.launches)
    sizes = []
    for number in plan.buffers:
        most = program.buffers[number].bytes.interval.hi
        assert most is not None
        sizes.append(most)
    return memory_plan.place(plan, sizes).arena_bytes


class _Moves:
    """The lists of a program in the making, with tickets for what is under way."""

    def __init__(self, program: Program, reach: int) -> None:
        self._program = program
        self._reach = reach
        self._tickets = itertools.count()

    def moved(self, launches: Sequence[Launch]) -> tuple[Launch, ...]:
        """A list with the ends of its collectives where they may be."""
        if not any(map(collects, launches)):
            return tuple(launches)
        items = [
            replace(launch, body=self.moved(launch.body))
            if isinstance(launch, LoopLaunch)
            else launch
            for launch in launches
        ]
        return _joined(self._waits_late(self._starts_early(items)))

    def _starts_early(self, items: Sequence[Launch]) -> list[Launch]:
        """The list with each collective as a start, moved up, and a wait where it stood."""
        written: dict[int, int] = {}  # by buffer, the place behind the last launch that writes it
        touched: dict[int, int] = {}
        starts: list[list[Launch]] = [[] for _ in items]
        rest: list[Launch] = []
        last = 0  # the place of the start before
        for here, item in enumerate(items):
            if isinstance(item, CollectiveLaunch) and item.phase == "both":
                sent, received = self._program.ends(item)
                free = [written.get(b, 0) for b in sent] + [touched.get(b, 0) for b in received]
                last = max(last, here - self._reach, *free)
                ticket = next(self._tickets)
                starts[last].append(replace(item, phase="start", ticket=ticket))
                rest.append(replace(item, phase="wait", ticket=ticket))
            else:
                rest.append(item)
                last = here + 1 if collects(item) else last
            for buffer, role in self._program.accesses(item):
                touched[buffer] = here + 1
                if role is not Role.IN:
                    written[buffer] = here + 1
        pairs = zip(starts, rest, strict=True)
        return [launch for before, item in pairs for launch in (*before, item)]

    def _waits_late(self, items: Sequence[Launch]) -> list[Launch]:
        """The list with each wait moved down."""
        end = len(items)
        written: dict[int, int] = {}  # by buffer, the next launch that writes it
        touched: dict[int, int] = {}
        waits: list[list[Launch]] = [[] for _ in range(end + 1)]
        for here in reversed(range(end)):
            item = items[here]
            if isinstance(item, CollectiveLaunch) and item.phase == "wait":
                sent, received = self._program.ends(item)
                ends = [written.get(b, end) for b in sent] + [touched.get(b, end) for b in received]
                waits[min(end, here + self._reach, *ends)].insert(0, item)
            for buffer, role in self._program.accesses(item):
                touched[buffer] = here
                if role is not Role.IN:
                    written[buffer] = here
        moved: list[Launch] = []
        for before, item in zip(waits, items, strict=False):
            moved += before if _is_wait(item) else (*before, item)
        return moved + waits[end]


def _is_wait(launch: Launch) -> bool:
    return isinstance(launch, CollectiveLaunch) and launch.phase == "wait"


def _joined(launches: Iterable[Launch]) -> tuple[Launch, ...]:
    """The list with ends that meet as one launch again: nothing would run between them."""
    joined: list[Launch] = []
    for launch in launches:
        last = joined[-1] if joined else None
        if (
            isinstance(launch, CollectiveLaunch)
            and launch.phase == "wait"
            and last == replace(launch, phase="start")
        ):
            joined[-1] = replace(launch, phase="both", ticket=0)
        else:
            joined.append(launch)
    return tuple(joined)

"""Collectives beside kernels: each begins as early and is waited for as late as it may be.

A collective becomes a start, right after what makes its operand, and a wait, right before the first
launch that reads its result or writes its operand. Where memory allows, kernels are put in an order
that leaves something to compute between the two (`list_schedule.py`), and trips of a Loop leave
their waits to the trip that follows (`loop_pipeline.py`). Then starts keep their order. All ranks
have the same list, so they start the same collectives in the same order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from luminal.base.costs import Costs
from luminal.hlir.sharding import in_order
from luminal.kernel.tile_ir import Role
from luminal.program import memory_plan
from luminal.program.launch_list import (
    CollectiveLaunch,
    Launch,
    LoopLaunch,
    Program,
    collects,
    is_end,
    tickets,
)
from luminal.program.loop_pipeline import pipelined

GROWTH = 1.25  # times the arena without overlap, where no limit is given
REACHES = (1 << 30, 256, 64, 16, 4)
"""Launches that an end moves past, at most: fewer are tried where the arena would grow too much."""


# An operand lives to the wait, and a result from the start on: what hides time takes memory. How
# much, only the memory plan knows, so it is asked.
def overlapped(program: Program, costs: Costs, limit: int | None = None) -> Program:
    """The program with collectives that run while kernels do; the same object if it has none.

    `costs` say what kernels take. `limit`: bytes of the arena at the upper ends of all dims, or as
    many as without overlap where those are more. By default the arena grows to GROWTH times that.
    """
    if in_order.get() or not any(map(collects, program.launches)):
        return program
    before = _arena(program)
    most = round(GROWTH * before) if limit is None else max(limit, before)
    apart = replace(program, launches=_apart(program.launches, itertools.count()))
    piped = pipelined(apart, costs)
    for candidate, reach in [(piped, REACHES[0]), *((apart, reach) for reach in REACHES)]:
        moved = replace(candidate, launches=_Moves(candidate, reach).moved(candidate.launches))
        if _arena(moved) <= most:
            return moved
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
        """The list with each start moved up."""
        written: dict[int, int] = {}  # by mark, the place behind the last launch that writes it
        touched: dict[int, int] = {}
        starts: list[list[Launch]] = [[] for _ in items]
        last = 0  # the place of the start before
        for here, item in enumerate(items):
            if is_end(item, "start"):
                sent, received = self._ends(item)
                free = [written.get(b, 0) for b in sent] + [touched.get(b, 0) for b in received]
                last = max(last, here - self._reach, *free)
                starts[last].append(item)
            elif isinstance(item, LoopLaunch) and collects(item):
                last = here + 1
            for mark, role in self._marks(item):
                touched[mark] = here + 1
                if role is not Role.IN:
                    written[mark] = here + 1
        moved: list[Launch] = []
        for before, item in zip(starts, items, strict=True):
            moved += before if is_end(item, "start") else (*before, item)
        return moved

    def _waits_late(self, items: Sequence[Launch]) -> list[Launch]:
        """The list with each wait moved down."""
        end = len(items)
        written: dict[int, int] = {}  # by mark, the next launch that writes it
        touched: dict[int, int] = {}
        waits: list[list[Launch]] = [[] for _ in range(end + 1)]
        for here in reversed(range(end)):
            item = items[here]
            if is_end(item, "wait"):
                sent, received = self._ends(item)
                ends = [written.get(b, end) for b in sent] + [touched.get(b, end) for b in received]
                waits[min(end, here + self._reach, *ends)].insert(0, item)
            for mark, role in self._marks(item):
                touched[mark] = here
                if role is not Role.IN:
                    written[mark] = here
        moved: list[Launch] = []
        for before, item in zip(waits, items, strict=False):
            moved += before if is_end(item, "wait") else (*before, item)
        return moved + waits[end]

    # A ticket is a mark like a buffer, with a number below those of buffers: where trips take turns
    # with a collective, their ends touch different buffers and keep their order all the same.
    def _marks(self, launch: Launch) -> Iterator[tuple[int, Role]]:
        """What a launch touches: buffers, and the tickets of collectives under way."""
        yield from self._program.accesses(launch)
        for ticket in tickets(launch):
            yield -1 - ticket, Role.OUT

    def _ends(self, launch: CollectiveLaunch) -> tuple[set[int], set[int]]:
        """The marks of what a collective sends, and those of what it receives and of its ticket."""
        sent, received = self._program.ends(launch)
        return sent, received | {-1 - launch.ticket}


def _apart(launches: Iterable[Launch], numbers: Iterator[int]) -> tuple[Launch, ...]:
    """The list with each collective as a start and a wait, under a ticket of their own."""
    apart: list[Launch] = []
    for launch in launches:
        if isinstance(launch, LoopLaunch):
            apart.append(replace(launch, body=_apart(launch.body, numbers)))
        elif isinstance(launch, CollectiveLaunch):
            start = replace(launch, phase="start", ticket=next(numbers))
            apart += (start, replace(start, phase="wait"))
        else:
            apart.append(launch)
    return tuple(apart)


def _joined(launches: Iterable[Launch]) -> tuple[Launch, ...]:
    """The list with ends that meet as one launch again: nothing would run between them."""
    joined: list[Launch] = []
    for launch in launches:
        last = joined[-1] if joined else None
        if is_end(launch, "wait") and last == replace(launch, phase="start"):
            joined[-1] = replace(launch, phase="both", ticket=0)
        else:
            joined.append(launch)
    return tuple(joined)

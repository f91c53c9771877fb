"""Loops as software pipelines: what waits for a collective in a trip runs in a later one.

The trips of a Loop hand something on, and what they hand on is computed in turn. What comes out of
a collective and is handed to no trip, as a gradient's sum and what it updates, is run later: while
the next trip computes. What goes into one and needs nothing of a trip, as a layer's cut weights, is
sent one trip ahead. So a trip's items have *stages*: pass r of the pipeline runs those of stage s
for trip r - s. Passes that begin before the first trip or end after the last one are written out
before and behind the Loop (Lam, Software Pipelining, 1988).

A collective is under way once at most: its wait for one trip comes before its start for the next.
All ranks run one list, so their collectives are in one order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from luminal.base.costs import Costs
from luminal.program.launch_list import (
    CollectiveLaunch,
    Launch,
    LoopLaunch,
    Operand,
    Program,
    collects,
)
from luminal.program.launch_seconds import Seconds
from luminal.program.list_schedule import filled
from luminal.program.loop_body import Body
from luminal.program.loop_schedule import Slot, scheduled
from luminal.shape.expression import const

_ZERO = const(0)


def pipelined(program: Program, costs: Costs) -> Program:
    """The program, whose collectives are starts and waits, with its Loops as pipelines where a
    collective can run beside the kernels of another trip, and with what would wait for one in a
    list behind what need not.

    A Loop's trips must be a number. Private buffers that live on in the next pass are two or more,
    in turns.
    """
    return _Pipelines(program, costs).made()


class _Staged(NamedTuple):
    """An item of a pass, and its stage."""

    launch: Launch
    stage: int


class _Pipelines:
    """The lists of a program in the making, with the buffers and entries that they add."""

    def __init__(self, program: Program, costs: Costs) -> None:
        self._program = program
        self._seconds = Seconds(program.launches, costs)
        self._buffers, self._table = [*program.buffers], [*program.table]

    def made(self) -> Program:
        """The program with all of its lists."""
        launches = self._list(self._program.launches, 1)
        buffers, table = tuple(self._buffers), tuple(self._table)
        return replace(self._program, launches=launches, buffers=buffers, table=table)

    def _list(self, launches: Sequence[Launch], depth: int) -> tuple[Launch, ...]:
        """A list inside of `depth` - 1 Loops."""
        out: list[Launch] = []
        for launch in launches:
            if not isinstance(launch, LoopLaunch) or not collects(launch):
                out.append(launch)
            elif any(isinstance(inner, LoopLaunch) and collects(inner) for inner in launch.body):
                out.append(replace(launch, body=self._list(launch.body, depth + 1)))
            else:
                out += self._passes(launch, depth)
        program = replace(self._program, buffers=tuple(self._buffers), table=tuple(self._table))
        return filled(program, out, self._seconds)

    def _passes(self, loop: LoopLaunch, depth: int) -> list[Launch]:
        """A Loop's passes; the Loop where one trip has nothing to do beside another."""
        if not loop.trips.is_const or loop.trips.value < 2:
            return [loop]
        body = Body(self._program, loop, depth, self._outside(loop))
        slots = scheduled(body, self._seconds)
        last = max((slot.stage for slot in slots), default=0)
        if not last or loop.trips.value <= last:
            return [loop]
        turns = _turns(body, slots)
        entries = {number: self._in_turns(number, n) for number, n in turns.items() if n > 1}
        items = [
            _Staged(self._renamed(body, slot.item, entries, turns), slot.stage) for slot in slots
        ]
        trips, local = loop.trips.value, {number for number, n in turns.items() if not n}
        out: list[Launch] = []
        for number in range(trips + last):
            if number == last:
                inner = tuple(_ahead(launch, depth, last - s) for launch, s in items)
                out.append(LoopLaunch(const(trips - last), inner))
            if not last <= number < trips:
                out += self._pass(items, depth, number, trips, local)
        return out

    def _pass(
        self, items: Sequence[_Staged], depth: int, number: int, trips: int, local: set[int]
    ) -> list[Launch]:
        """A pass outside of the Loop: what it has of the trips. Buffers that a pass is done with
        are its own, so that they need not last as long as the Loop.
        """
        copies: dict[int, int] = {}  # by buffer, the entry of this pass's own

        def at(operand: Operand, trip: int) -> Operand:
            buffer = self._table[operand.entry]
            if buffer not in local:
                return _operand(operand, depth, trip)
            if buffer not in copies:
                copies[buffer] = self._in_turns(buffer, 2) + 1
            return replace(operand, entry=copies[buffer])

        def resolved(launch: Launch, trip: int) -> Launch:
            if isinstance(launch, LoopLaunch):
                return replace(launch, body=tuple(resolved(part, trip) for part in launch.body))
            return replace(launch, operands=tuple(at(part, trip) for part in launch.operands))

        return [resolved(item, number - s) for item, s in items if 0 <= number - s < trips]

    def _outside(self, loop: LoopLaunch) -> set[int]:
        """The buffers that something else than a Loop touches."""
        outside = {output.buffer for output in self._program.outputs}
        waiting = [*self._program.launches]
        while waiting:
            launch = waiting.pop()
            if isinstance(launch, LoopLaunch):
                waiting += () if launch is loop else launch.body
            else:
                outside |= {number for number, _ in self._program.accesses(launch)}
        return outside

    def _renamed(
        self, body: Body, item: int, entries: Mapping[int, int], turns: Mapping[int, int]
    ) -> Launch:
        """An item with the copies of buffers that take turns."""

        def turned(operand: Operand) -> Operand:
            number = self._table[operand.entry]
            if number not in entries:
                return operand
            return replace(operand, entry=entries[number], depth=body.depth, modulus=turns[number])

        def renamed(launch: Launch) -> Launch:
            if isinstance(launch, LoopLaunch):
                return replace(launch, body=tuple(map(renamed, launch.body)))
            return replace(launch, operands=tuple(map(turned, launch.operands)))

        return renamed(body.items[item])

    def _in_turns(self, number: int, count: int) -> int:
        """The first entry of so many that are this buffer and copies of it."""
        entry = len(self._table)
        self._table.append(number)
        for _ in range(count - 1):
            copy = replace(self._buffers[number], id=len(self._buffers))
            self._table.append(copy.id)
            self._buffers.append(copy)
        return entry


def _turns(body: Body, slots: Sequence[Slot]) -> dict[int, int]:
    """How many trips hold something in each private buffer at one time; 0 where one pass is all
    that a trip needs it for.
    """
    uses: dict[int, list[tuple[int, int]]] = {}
    for place, slot in enumerate(slots):
        for number in body.buffers(slot.item) & body.private:
            uses.setdefault(number, []).append((slot.stage, place))
    for item in body.items:  # what lies side by side takes turns together
        if isinstance(item, CollectiveLaunch) and item.members > 1:
            for half in (item.operands[: item.members], item.operands[item.members :]):
                row = {body.program.table[operand.entry] for operand in half}
                uses |= {key: [use for number in row for use in uses[number]] for key in row}
    turns = {}
    for number, places in uses.items():
        (first, begins), (last, ends) = min(places), max(places)
        turns[number] = last - first + (ends >= begins) if last > first else 0
    return turns


def _ahead(launch: Launch, depth: int, trips: int) -> Launch:
    """A launch of a Loop's body as it is so many trips later."""
    if isinstance(launch, LoopLaunch):
        return replace(launch, body=tuple(_ahead(part, depth, trips) for part in launch.body))
    operands = tuple(
        replace(
            operand,
            offset=operand.offset + trips,
            start=operand.start + operand.stride * trips,
        )
        if operand.depth == depth
        else operand
        for operand in launch.operands
    )
    return replace(launch, operands=operands)


def _operand(operand: Operand, depth: int, trip: int) -> Operand:
    """An operand of a Loop's body as it is in one trip, outside of the Loop."""
    if operand.depth != depth:
        inner = operand.depth > depth
        return replace(operand, depth=operand.depth - 1) if inner else operand
    start, offset = operand.start + operand.stride * trip, operand.offset + trip
    if not offset.is_const:
        return Operand(operand.entry, 0, offset, operand.modulus, _ZERO, start)
    return Operand(operand.entry + offset.value % operand.modulus, 0, start=start)

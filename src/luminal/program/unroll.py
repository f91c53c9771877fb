"""Loops of known trips written out in the launch list: the same kernels, one launch a trip.

What a Loop saves in rows costs it a barrier after every trip and one place for all trips' work;
whether that matters is for a measurement to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from luminal.kernel.tile_ir import Role
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Launch, LoopLaunch, Operand, Program, walk

Entries = Mapping[int, int]
"""Table entries that one trip uses in place of others."""


# A rolled Loop takes the time of its trips written out (0.99 to 1.04), so this is for searches,
# which may find kernels that are better for one trip than for all.
def unroll(program: Program) -> Program:
    """The program with its Loops written out, where trips are known and no operand is a slice of a
    tensor. Buffers that each trip writes anew are one for each trip.
    """
    buffers, table = [*program.buffers], [*program.table]
    launches: list[Launch] = []
    for launch in program.launches:
        private = _own(program, launch)
        for t, written in enumerate(_trips(launch, 1)):
            entries: dict[int, int] = {}
            for entry in private if t else ():
                entries[entry] = len(table)
                table.append(len(buffers))
                buffers.append(replace(buffers[program.table[entry]], id=len(buffers)))
            launches += (_resolved(written_launch, 0, 0, entries) for written_launch in written)
    return replace(
        program,
        buffers=tuple(buffers),
        table=tuple(table),
        prologue=written_out(program.prologue),
        launches=tuple(launches),
    )


def written_out(launches: tuple[Launch, ...]) -> tuple[Launch, ...]:
    """A launch list with its Loops written out, as far as they can be, all trips in one memory."""
    return tuple(inner for launch in launches for trip in _trips(launch, 1) for inner in trip)


def _trips(launch: Launch, depth: int) -> list[tuple[Launch, ...]]:
    """The launches of each trip of a Loop; of anything else one trip that is itself."""
    if not isinstance(launch, LoopLaunch):
        return [(launch,)]
    # Inner Loops first: once their trips are written out, their operands have the depth of this
    # one.
    body = tuple(e for inner in launch.body for trip in _trips(inner, depth + 1) for e in trip)
    operands = [o for inner in walk(body) for o in inner.operands if o.depth == depth]
    if not launch.trips.is_const or any(o.stride != 0 or not o.offset.is_const for o in operands):
        return [(LoopLaunch(launch.trips, body),)]
    count = launch.trips.value
    return [tuple(_resolved(part, depth, t, {}) for part in body) for t in range(count)]


def _resolved(launch: Launch, depth: int, t: int, entries: Entries) -> Launch:
    """A launch as the Loop of this depth has it in trip t; Loops further in come out by one."""
    if isinstance(launch, LoopLaunch):
        body = tuple(_resolved(part, depth, t, entries) for part in launch.body)
        return LoopLaunch(launch.trips, body)
    operands: Any = tuple(_operand(part, depth, t, entries) for part in launch.operands)
    return replace(launch, operands=operands)


def _operand(operand: Operand, depth: int, t: int, entries: Entries) -> Operand:
    if operand.modulus == 1 and operand.entry in entries:
        return replace(operand, entry=entries[operand.entry])
    if depth and operand.depth == depth:
        return Operand(operand.entry + (t + operand.offset.value) % operand.modulus)
    return replace(operand, depth=operand.depth - 1) if 0 < depth < operand.depth else operand


def _own(program: Program, loop: Launch) -> list[int]:
    """The table entries of buffers that a Loop alone touches, each trip writing them first."""
    if not isinstance(loop, LoopLaunch):
        return []
    others = [launch for launch in program.launches if launch is not loop]
    outside = {number for launch in others for number, _ in program.accesses(launch)}
    first: dict[int, Role] = {}
    moving: set[int] = set()
    for launch in walk(loop.body):
        for operand, role in zip(launch.operands, program.roles(launch), strict=True):
            if operand.depth:
                moving.update(program.table[entry] for entry in program.entries(operand))
            first.setdefault(operand.entry, role)
    return [
        entry
        for entry, role in first.items()
        if role is Role.OUT
        and program.buffers[program.table[entry]].kind is BufferKind.ARENA
        and program.table[entry] not in outside | moving
    ]

"""What must hold of a Program and of a placement of its buffers; raises VerifyError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from luminal.base.errors import VerifyError
from luminal.hlir.attributes import ConstantAttrs, WeightAttrs
from luminal.kernel.tile_ir import Role
from luminal.memory.alignment import ALIGNMENT
from luminal.memory.state import Assignable
from luminal.program.buffers import Buffer, BufferKind
from luminal.program.constants import written
from luminal.program.launch_list import (
    CollectiveLaunch,
    KernelLaunch,
    Launch,
    LoopLaunch,
    Operand,
    Program,
    barriers,
    collects,
    kernel_launches,
    walk,
)
from luminal.program.memory_plan import MemoryPlan, Placement, aligned
from luminal.shape.expression import Expression, const

READ_ONLY = (BufferKind.INPUT, BufferKind.WEIGHT, BufferKind.CONSTANT)
OWNERS: dict[BufferKind, Any] = {
    BufferKind.INPUT: str,
    BufferKind.OUTPUT: str,
    BufferKind.WEIGHT: WeightAttrs,
    BufferKind.STATE: Assignable,
    BufferKind.NEXT: Assignable,
    BufferKind.CONSTANT: ConstantAttrs,
}


def verify(program: Program) -> None:
    """Checks references, roles, dims and that every buffer is written before it is read."""
    for number, buffer in enumerate(program.buffers):
        _verify_buffer(number, buffer)
    for entry, number in enumerate(program.table):
        if not 0 <= number < len(program.buffers):
            raise VerifyError(f"table entry {entry}: no buffer {number}")
    names = {dim.name for dim in program.dims}
    for launches, prologue in ((program.prologue, True), (program.launches, False)):
        _verify_launches(program, launches, 0, set() if prologue else names)
        _verify_accesses(program, launches, prologue)
        _verify_constants(program, launches)
        _verify_tickets(program, launches)
    derived = {b.id for b in program.buffers if b.kind is BufferKind.DERIVED}
    _verify_written(program, program.prologue, set())
    _verify_written(program, program.launches, derived)
    _verify_outputs(program)


def _verify_buffer(number: int, buffer: Buffer) -> None:
    if buffer.id != number:
        raise VerifyError(f"{buffer}: its id is {buffer.id}, its place {number}")
    owner = OWNERS.get(buffer.kind)
    if owner is not None and not isinstance(buffer.owner, owner):
        raise VerifyError(f"{buffer}: its owner {buffer.owner!r} is not a {owner.__name__}")


def _verify_launches(
    program: Program, launches: tuple[Launch, ...], depth: int, dims: set[str]
) -> None:
    for launch in launches:
        if isinstance(launch, LoopLaunch):
            _verify_dims("loop", launch.trips, dims)
            _verify_launches(program, launch.body, depth + 1, dims)
            continue
        if isinstance(launch, CollectiveLaunch):
            _verify_collective(program, launch, depth, dims)
            continue
        if not 0 <= launch.kernel < len(program.kernels):
            raise VerifyError(f"{launch.label}: no kernel {launch.kernel}")
        kernel = program.kernels[launch.kernel]
        for what, present, wanted in (
            ("operands", len(launch.operands), len(kernel.buffers)),
            ("params", len(launch.params), len(kernel.params)),
        ):
            if present != wanted:
                raise VerifyError(
                    f"{launch.label}: {present} {what}, k{launch.kernel} has {wanted}"
                )
        for expression in (launch.chunks, launch.flops, launch.bytes, *launch.params):
            _verify_dims(launch.label, expression, dims)
        for operand, buffer in zip(launch.operands, kernel.buffers, strict=True):
            _verify_operand(program, launch, operand, depth, dims)
            if kernel.lanes > 1 and buffer.is_aligned and not operand.is_aligned:
                raise VerifyError(f"{launch.label}: {operand} may lie anywhere, {buffer.name} not")


def _verify_constants(program: Program, launches: tuple[Launch, ...]) -> None:
    varying = written(program, launches)
    for launch in kernel_launches(launches):
        buffers = program.kernels[launch.kernel].buffers
        for operand, buffer in zip(launch.operands, buffers, strict=True):
            numbers = {program.table[entry] for entry in program.entries(operand)}
            if buffer.constant and numbers & varying:
                number = min(numbers & varying)
                raise VerifyError(
                    f"{launch.label}: {buffer.name} is constant in k{launch.kernel}, and a launch "
                    f"writes {program.buffers[number]}; leave it unmarked"
                )


def _verify_collective(
    program: Program, launch: CollectiveLaunch, depth: int, dims: set[str]
) -> None:
    ranks, kind = launch.attrs.ranks, launch.attrs.kind
    more = {"all_gather": (ranks, 1), "reduce_scatter": (1, ranks)}.get(kind, (1, 1))
    halves = launch.sizes[: launch.members], launch.sizes[launch.members :]
    for sent, received in zip(*halves, strict=True):
        if sent * more[0] != received * more[1]:
            raise VerifyError(f"{launch.title}: {sent} elements to {received} by {ranks} ranks")
    for operand, size in zip(launch.operands, launch.sizes, strict=True):
        _verify_operand(program, launch, operand, depth, dims)
        _verify_dims(launch.label, size, dims)


def _verify_tickets(program: Program, launches: tuple[Launch, ...]) -> None:
    """Each start has its wait behind it, in this trip of a Loop or a later one, and nobody comes
    between: none writes what is sent or touches what is received.
    """
    begun: dict[int, tuple[CollectiveLaunch, list[_Touch]]] = {}
    for launch, trips in _played(launches, ()):
        touches = [*_touches(program, launch, trips)]
        if isinstance(launch, CollectiveLaunch) and launch.phase == "wait":
            start, ends = begun.pop(launch.ticket, (None, None))
            is_same = (
                start is not None
                and replace(start, phase="wait", operands=launch.operands) == launch
            )
            if not is_same or ends != [(*touch[:-1], Role.IN) for touch in touches]:
                raise VerifyError(f"{launch.title}: no start before it has its ticket and operands")
        for start, ends in begun.values():
            _verify_apart(program, start, ends, touches)
        if isinstance(launch, CollectiveLaunch) and launch.phase == "start":
            if launch.ticket in begun:
                raise VerifyError(f"{launch.title}: its ticket {launch.ticket} is under way")
            begun[launch.ticket] = launch, [(*touch[:-1], Role.IN) for touch in touches]
    for start, _ in begun.values():
        raise VerifyError(f"{start.title}: nobody waits for it")


_Touch = tuple[frozenset[int], Expression, Expression, Role]
"""Buffers of which a launch touches one, from where in it, up to where, and how."""


def _played(
    launches: tuple[Launch, ...], trips: tuple[int, ...]
) -> Iterator[tuple[Launch, tuple[int, ...]]]:
    """Launches as they run, with the trips of the Loops around them; of Loops without collectives
    all at once.
    """
    for launch in launches:
        if isinstance(launch, LoopLaunch) and collects(launch):
            for trip in range(launch.trips.value if launch.trips.is_const else 2):
                yield from _played(launch.body, (*trips, trip))
        else:
            yield launch, trips


def _touches(program: Program, launch: Launch, trips: tuple[int, ...]) -> Iterator[_Touch]:
    if isinstance(launch, LoopLaunch):
        for number, role in program.accesses(launch):
            yield frozenset([number]), const(0), program.buffers[number].bytes, role
        return
    sizes = _operand_bytes(program, launch)
    for operand, role, size in zip(launch.operands, program.roles(launch), sizes, strict=True):
        entries = program.entries(operand)
        trip = trips[operand.depth - 1] if operand.depth else 0
        start = operand.start + operand.stride * trip
        if operand.offset.is_const:
            entry = entries[(operand.offset.value + trip) % operand.modulus]
            entries = range(entry, entry + 1)
        yield frozenset(program.table[entry] for entry in entries), start, start + size, role


def _operand_bytes(program: Program, launch: KernelLaunch | CollectiveLaunch) -> list[Expression]:
    """The bytes of each operand of a launch."""
    if isinstance(launch, CollectiveLaunch):
        return [size * launch.dtype.size for size in launch.sizes]
    kernel = program.kernels[launch.kernel]
    values = dict(zip(kernel.params, launch.params, strict=True))
    return [buffer.size.substitute(values) * buffer.dtype.size for buffer in kernel.buffers]


def _verify_apart(
    program: Program, start: CollectiveLaunch, ends: list[_Touch], touches: list[_Touch]
) -> None:
    for k, (buffers, low, high, _) in enumerate(ends):
        for others, other_low, other_high, role in touches:
            common = buffers & others
            is_apart = _is_below(high, other_low) or _is_below(other_high, low)
            if common and not is_apart and (k >= start.members or role is not Role.IN):
                number = min(common)
                raise VerifyError(
                    f"{start.title}: a launch touches {program.buffers[number]} before the wait"
                )


def _is_below(one: Expression, other: Expression) -> bool:
    """Is one position surely not behind the other?"""
    least = (other - one).interval.lo
    return least is not None and least >= 0


def _verify_operand(
    program: Program,
    launch: KernelLaunch | CollectiveLaunch,
    operand: Operand,
    depth: int,
    dims: set[str],
) -> None:
    if operand.modulus < 1 or not 0 <= operand.entry <= len(program.table) - operand.modulus:
        raise VerifyError(f"{launch.label}: {operand} is outside the table")
    if not 0 <= operand.depth <= depth:
        raise VerifyError(f"{launch.label}: {operand} counts a Loop that is not around it")
    if operand.depth == 0 and operand.stride != 0:  # entries may still be chosen by the offset
        raise VerifyError(f"{launch.label}: {operand} moves outside every Loop")
    _verify_dims(launch.label, operand.offset, dims)
    _verify_dims(launch.label, operand.stride, dims)
    _verify_dims(launch.label, operand.start, dims)


def _verify_dims(what: str, expression: Expression, dims: set[str]) -> None:
    unknown = sorted({symbol.name for symbol in expression.symbols()} - dims)
    if unknown:
        raise VerifyError(f"{what}: {expression} uses {', '.join(unknown)}, no dim of the program")


def _verify_accesses(program: Program, launches: tuple[Launch, ...], prologue: bool) -> None:
    """Who may write what: only the prologue writes DERIVED buffers, and it sees no run's data."""
    hidden = (BufferKind.INPUT, BufferKind.STATE, BufferKind.NEXT, BufferKind.OUTPUT)
    for launch in walk(launches):
        for number, role in program.accesses(launch):
            buffer = program.buffers[number]
            if prologue and buffer.kind in hidden:
                raise VerifyError(f"{launch.label}: the prologue touches {buffer}")
            frozen = buffer.kind in READ_ONLY or (
                buffer.kind is BufferKind.DERIVED and not prologue
            )
            if role is not Role.IN and frozen:
                raise VerifyError(f"{launch.label}: writes {buffer}")


def _verify_written(program: Program, launches: tuple[Launch, ...], written: set[int]) -> None:
    """ARENA, NEXT, OUTPUT and DERIVED buffers hold nothing before a launch writes them."""
    empty = (BufferKind.ARENA, BufferKind.NEXT, BufferKind.OUTPUT, BufferKind.DERIVED)
    for launch in walk(launches):
        for operand, role in zip(launch.operands, program.roles(launch), strict=True):
            # Of buffers that take turns the first iteration needs but one.
            numbers = [program.table[entry] for entry in program.entries(operand)]
            is_filled = any(n in written or program.buffers[n].kind not in empty for n in numbers)
            if role is Role.IN and not is_filled:
                what = program.buffers[numbers[0]]
                raise VerifyError(f"{launch.label}: reads {what} before it is written")
        written |= {number for number, role in program.accesses(launch) if role is not Role.IN}


def _verify_outputs(program: Program) -> None:
    written = {
        number
        for launch in walk(program.launches)
        for number, role in program.accesses(launch)
        if role is not Role.IN
    }
    taken: dict[int, str] = {}
    for output in program.outputs:
        kind = program.buffers[output.buffer].kind
        other = taken.setdefault(output.buffer, output.name)
        if other != output.name:
            raise VerifyError(f"output {output.name}: b{output.buffer} is {other} already")
        if kind is not BufferKind.OUTPUT and not output.hidden:
            raise VerifyError(f"output {output.name}: b{output.buffer} is an {kind.value} buffer")
        if kind is BufferKind.OUTPUT and output.buffer not in written:
            raise VerifyError(f"output {output.name}: no launch writes b{output.buffer}")
    following = {b.owner for b in program.buffers if b.kind is BufferKind.NEXT}
    if following != set(program.swaps):
        raise VerifyError("swaps: they are not the States with a second buffer")


# --- placements -----------------------------------------------------------------------------------

Range = tuple[int, int]


def verify_placement(
    program: Program, launches: tuple[Launch, ...], plan: MemoryPlan, placement: Placement
) -> None:
    """Plays the launches, Loops twice: between a write and its reads nobody else may write there.

    Independent of how the plan was made. Raises VerifyError that names both buffers.
    """
    ranges: dict[int, Range] = {}
    for buffer, offset, size in zip(plan.buffers, placement.offsets, placement.sizes, strict=True):
        if offset % ALIGNMENT or offset + size > placement.arena_bytes:
            raise VerifyError(f"b{buffer}: bytes {offset}..{offset + size} do not fit the arena")
        ranges[buffer] = (offset, offset + size)
    for row in plan.rows:
        for one, other in pairwise(row):
            if placement.offsets[other] != placement.offsets[one] + aligned(placement.sizes[one]):
                apart = f"b{plan.buffers[one]} and b{plan.buffers[other]}"
                raise VerifyError(f"{apart} are of one collective and do not lie side by side")
    history: dict[int, int] = {}  # buffer: the epoch of its last write
    epochs = _epochs(program, launches)
    writes: list[tuple[int, int]] = []  # (epoch, buffer), ascending
    for epoch, accesses in enumerate(epochs):
        for buffer, role in accesses.items():
            if buffer in ranges and role is not Role.IN:
                writes.append((epoch, buffer))
        for buffer, role in accesses.items():
            if buffer not in ranges:
                continue
            since = epoch if role is Role.OUT else history.get(buffer, epoch)
            _verify_undisturbed(buffer, since, writes, ranges)
        history |= {b: epoch for b, role in accesses.items() if role is not Role.IN}


def _verify_undisturbed(
    buffer: int, since: int, writes: list[tuple[int, int]], ranges: Mapping[int, Range]
) -> None:
    """No other buffer over the same bytes was written from epoch `since` on."""
    start, end = ranges[buffer]
    for epoch, other in reversed(writes):
        if epoch < since:
            return
        low, high = ranges[other]
        if other != buffer and low < end and start < high:
            raise VerifyError(f"b{buffer} and b{other} share memory and live at one time")


def _epochs(program: Program, launches: tuple[Launch, ...]) -> list[dict[int, Role]]:
    """What each barrier epoch touches, Loops unrolled twice."""
    # Twice is enough: what an iteration hands on, it hands on to the next one.
    epochs: list[dict[int, Role]] = [{}]
    for step in _steps(program, launches):
        if step is None:
            epochs.append({})
            continue
        for buffer, role in program.accesses(step):
            role_before = epochs[-1].get(buffer, role)
            epochs[-1][buffer] = role if role_before is role else Role.INOUT
    return epochs


def _steps(
    program: Program, launches: tuple[Launch, ...]
) -> Iterator[KernelLaunch | CollectiveLaunch | None]:
    """Launches in order; None is a barrier."""
    for launch, barrier in zip(launches, barriers(program, launches), strict=True):
        if barrier:
            yield None
        if isinstance(launch, LoopLaunch):
            for _ in range(2):
                yield from _steps(program, launch.body)
                yield None
        else:
            yield launch

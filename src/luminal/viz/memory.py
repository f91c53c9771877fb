"""The memory of a run: its arena over time, buffer by buffer, and what lies beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from luminal.base.lines import Recorded
from luminal.base.origins import described
from luminal.hlir.attributes import WeightAttrs
from luminal.kernel.tile_ir import Role
from luminal.memory.arrays import HostBuffer
from luminal.program.buffers import Buffer, BufferKind
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Program, walk
from luminal.program.quantities import Quantities
from luminal.runtime.placements import Placements
from luminal.runtime.report import MemoryReport
from luminal.viz.launches import Computed
from luminal.viz.sources import Sources
from luminal.viz.values import Values

Span = tuple[int, int]
"""The first and the last launch that touch a buffer, by their places in a run."""


def memory(
    computed: Computed, values: Values, sources: Sources, dims: Mapping[str, int],
    held: MemoryReport,
) -> dict[str, Any]:  # fmt: skip
    """The buffers of a run, where those of its arena lie and when, and the moment that needs most.

    A buffer that a Loop carries, or that is touched inside and outside of it, lives for the whole
    Loop; buffers between two barriers are live together.
    """
    program = computed.compiled.program
    lives, makers, leaves = _lives(program), _makers(program, computed), _leaves(values)
    offsets, arena = _placed(program, dims)
    sizes = {b.id: int(b.bytes.evaluate(dims)) for b in program.buffers}
    buffers, same = [], _same_memory(program)
    for buffer in program.buffers:
        of, recorded = makers.get(buffer.id, ((), ()))
        recorded = recorded or tuple(dict.fromkeys(values.recorded(of)))  # a copy has no line
        first, last = lives.get(buffer.id, (-1, -1))
        buffers.append(
            {
                "id": buffer.id,
                "name": buffer.owner_name or f"b{buffer.id}",
                "text": str(buffer),
                "bytes": sizes[buffer.id],
                "offset": offsets.get(buffer.id),
                "first": first,
                "last": last,
                "kind": buffer.kind.value,
                "same_as": same.get(buffer.id),
                "of": of or leaves.get(_owner(buffer), []),
                "origin": described(recorded),
                "lines": sources.lines(recorded),
            }
        )
    inside = [row for row in buffers if row["offset"] is not None]
    return {
        "arena_bytes": arena,
        "sum_bytes": sum(row["bytes"] for row in inside),
        "peak": _peak(inside),
        "buffers": buffers,
        "report": held.facts(),
    }


def _same_memory(program: Program) -> dict[int, int]:
    """The buffers that lie where an earlier one does, with that: a packed matrix has two dtypes."""
    twins: dict[int, int] = {}
    first: dict[tuple[int, int], int] = {}
    for buffer in program.buffers:
        if isinstance(buffer.owner, WeightAttrs):
            stored = buffer.owner.parameter.stored
            if isinstance(stored, HostBuffer):
                other = first.setdefault((stored.address, stored.nbytes), buffer.id)
                if other != buffer.id:
                    twins[buffer.id] = other
    return twins


def _placed(program: Program, dims: Mapping[str, int]) -> tuple[dict[int, int], int]:
    """The offsets of the arena's buffers where dims have these values, and its bytes."""
    quantities = Quantities(tuple(dim.name for dim in program.dims))
    placements = Placements(program, quantities)
    placement = placements.at(quantities.evaluate(dims))
    pairs = zip(placements.plan.buffers, placement.offsets, strict=True)
    return dict(pairs), placement.arena_bytes


def _lives(program: Program) -> dict[int, Span]:
    """When each buffer of a run is in use: by the whole Loop where a Loop carries it."""
    lives: dict[int, Span] = {}
    count = 0

    def touch(buffer: int, first: int, last: int) -> None:
        before = lives.get(buffer, (first, last))
        lives[buffer] = min(first, before[0]), max(last, before[1])

    def visit(launches: tuple[Launch, ...]) -> None:
        nonlocal count
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                first = count
                visit(launch.body)
                for buffer in _lasting(program, launch):
                    touch(buffer, first, count - 1)
                continue
            for buffer, _ in program.accesses(launch):
                touch(buffer, count, count)
            count += 1

    visit(program.launches)
    return lives


def _lasting(program: Program, loop: LoopLaunch) -> set[int]:
    """What lives through all iterations: it moves with them, is read before it is written, or is
    touched outside of the Loop as well.
    """
    lasting: set[int] = set()
    written: set[int] = set()
    for launch in walk(loop.body):
        for operand, role in zip(launch.operands, program.roles(launch), strict=True):
            entries = {program.table[entry] for entry in program.entries(operand)}
            if operand.modulus > 1 or operand.stride != 0:
                lasting |= entries
            elif role is not Role.OUT:
                lasting |= entries - written
            written |= entries
    inside = _touched(program, loop.body)
    outside = {
        buffer
        for launch in program.launches
        if launch is not loop
        for buffer in _touched(program, (launch,))
    }
    return lasting | (inside & outside)


def _touched(program: Program, launches: tuple[Launch, ...]) -> set[int]:
    return {buffer for launch in launches for buffer, _ in program.accesses(launch)}


def _makers(
    program: Program, computed: Computed
) -> dict[int, tuple[tuple[int, ...], tuple[Recorded, ...]]]:
    """The values that lie in a buffer, with where they come from: those of what writes it."""
    makers: dict[int, tuple[tuple[int, ...], tuple[Recorded, ...]]] = {}
    for launch in walk((*program.prologue, *program.launches)):
        if not isinstance(launch, KernelLaunch):
            continue
        for buffer, role in program.accesses(launch):
            if role is not Role.IN:
                of, recorded = makers.get(buffer, ((), ()))
                both = tuple(sorted({*of, *computed.stored(launch)}))
                makers[buffer] = both, tuple(dict.fromkeys((*recorded, *launch.origins)))
    return makers


def _leaves(values: Values) -> dict[Any, list[int]]:
    """The inputs, weights, States and literals of the graph by what owns their buffers."""
    owners: dict[Any, list[int]] = {}
    for number, node in enumerate(values.nodes):
        attrs = node.attrs
        match node.op.name:
            case "Input":
                owner: Any = attrs.name
            case "State":
                owner = attrs.state
            case "Weight":
                owner = attrs.parameter
            case "Constant":
                owner = attrs
            case _:
                continue
        owners.setdefault(owner, []).append(number)
    return owners


def _owner(buffer: Buffer) -> Any:
    """The owner of a buffer, as `_leaves` names it; None of what the program owns."""
    if buffer.kind in (BufferKind.ARENA, BufferKind.OUTPUT, BufferKind.DERIVED):
        return None
    return buffer.owner.parameter if isinstance(buffer.owner, WeightAttrs) else buffer.owner


def _peak(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The launch at which most bytes are live, and which these are, the largest first."""
    if not rows:
        return None
    ends = {row["first"] for row in rows}
    at, live = max(
        ((n, [row for row in rows if row["first"] <= n <= row["last"]]) for n in sorted(ends)),
        key=lambda pair: sum(row["bytes"] for row in pair[1]),
    )
    live.sort(key=lambda row: -row["bytes"])
    return {
        "at": at,
        "bytes": sum(row["bytes"] for row in live),
        "buffers": [row["id"] for row in live],
    }

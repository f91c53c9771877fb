"""The largest values of an arena in words: what an error says that asks for less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from luminal.base.origins import described
from luminal.kernel.tile_ir import Role
from luminal.program.launch_list import KernelLaunch, Program, walk
from luminal.program.memory_plan import MemoryPlan

NAMED = 3  # values that an error names


def largest(program: Program, plan: MemoryPlan, sizes: Sequence[int]) -> str:
    """The values of a plan that take most bytes, with the kernels that make them and the user's
    modules and lines these come from.
    """
    makers = dict(_makers(program))
    ordered = sorted(zip(sizes, plan.buffers, strict=True), reverse=True)
    rows = []
    for size, number in ordered[:NAMED]:
        buffer = program.buffers[number]
        shape = ", ".join(map(str, buffer.shape))
        maker = f" of {makers[number]}" if number in makers else ""
        rows.append(f"{buffer.dtype.short}[{shape}]{maker}: {told(size)}")
    return "; ".join(rows)


def told(size: int) -> str:
    """Bytes in the unit that suits them: `1.5 GiB`, `20.0 KiB`."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if size >= factor:
            return f"{size / factor:,.1f} {unit}"
    return f"{size / 2**10:,.1f} KiB"


def _makers(program: Program) -> Iterator[tuple[int, str]]:
    """Buffers that kernels write, with what the kernels compute."""
    for launch in walk(program.launches):
        label = repr(launch.label)
        if isinstance(launch, KernelLaunch) and (origin := described(launch.origins)):
            label += f" in {origin}"
        for operand, role in zip(launch.operands, program.roles(launch), strict=True):
            if role is not Role.IN:
                yield program.table[operand.entry], label

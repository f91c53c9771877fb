"""Runs launches of a prologue: once, with memory of their own, by the whole team."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from luminal.backends.cpu import team
from luminal.backends.cpu.launch_rows import CACHE_LINES, LaunchRows
from luminal.base import config
from luminal.base.dtypes import uint8
from luminal.memory.arrays import HostBuffer, address, aligned_empty
from luminal.memory.poison import poison
from luminal.program import memory_plan
from luminal.program.launch_list import Launch, Program
from luminal.program.quantities import Quantities


def derive(
    program: Program,
    functions: Sequence[int],
    launches: tuple[Launch, ...],
    buffers: Mapping[int, HostBuffer],
) -> None:
    """Runs launches of a prologue, with an arena of their own. `functions[k]` is the address of
    kernel k's code.
    """
    # An arena of its own, freed at once: what the prologue needs beside its results would otherwise
    # be held as long as the program.
    quantities = Quantities(())
    rows = LaunchRows(program, launches, functions, quantities)
    values = quantities.evaluate({})
    filled, stride = rows.make(), rows.scratch_stride(values)
    rows.fill(filled, values)
    plan = memory_plan.plan(program, launches)
    sizes = [program.buffers[number].bytes.value for number in plan.buffers]
    placement = memory_plan.place(plan, sizes)
    arena = aligned_empty((placement.arena_bytes,), uint8)
    addresses = {number: buffer.address for number, buffer in buffers.items()}
    for number, offset in zip(plan.buffers, placement.offsets, strict=True):
        addresses[number] = address(arena) + offset
    table = np.array([addresses.get(number, 0) for number in program.table], np.uint64)
    threads = team.team_size_default()
    scratch = aligned_empty((threads * stride + CACHE_LINES,), uint8)
    if config.get("LUMINAL_POISON"):
        poison((arena, scratch))
    start = address(scratch) + -address(scratch) % CACHE_LINES
    record = team.run_record(filled.launches, filled.slot_refs, table, threads, start, stride)
    team.execute(record.ctypes.data)

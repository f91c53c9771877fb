"""The native records of a Program's runs: made once, filled in place when the dims change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal import config
from luminal.backends.cpu import team
from luminal.backends.cpu.launch_rows import CACHE_LINES, LaunchRows
from luminal.backends.cpu.prologue import Prologue
from luminal.dtypes import uint8
from luminal.hlir.memory import Array, address, aligned_empty
from luminal.hlir.state import Assignable
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Program
from luminal.program.memory_plan import MemoryPlan, Placement


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What the entries of a Program's table hold: (entry, which array) by kind of buffer."""

    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    copies: tuple[tuple[int, int], ...]  # outputs of one buffer: (from, to)
    states: tuple[tuple[int, Assignable], ...]
    following: tuple[tuple[int, Assignable], ...]
    fixed: tuple[tuple[int, int], ...]  # weights, literals, derived: (entry, buffer)
    arena: NDArray[np.int64]  # (2, n): entries, places in the memory plan
    hidden: tuple[tuple[int, int], ...]  # outputs that nobody takes: (entry, buffer)

    @classmethod
    def of(
        cls, program: Program, plan: MemoryPlan, inputs: Sequence[str], outputs: Sequence[str]
    ) -> Table:
        """`inputs` and `outputs`: the names of a run's arrays, in order."""
        place = {name: k for k, name in enumerate(outputs)}
        first: dict[int, int] = {}
        copies = []
        for output in program.outputs:
            if output.name in place:
                k = place[output.name]
                if first.setdefault(output.buffer, k) != k:
                    copies.append((first[output.buffer], k))
        planned = {number: k for k, number in enumerate(plan.buffers)}
        found: dict[BufferKind, list[tuple[int, Any]]] = {kind: [] for kind in BufferKind}
        hidden = []
        for entry in program.used_entries():
            number = program.table[entry]
            buffer = program.buffers[number]
            match buffer.kind:
                case BufferKind.INPUT:
                    found[buffer.kind].append((entry, inputs.index(str(buffer.owner))))
                case BufferKind.OUTPUT if number in first:
                    found[buffer.kind].append((entry, first[number]))
                case BufferKind.OUTPUT:
                    hidden.append((entry, number))
                case BufferKind.STATE | BufferKind.NEXT:
                    found[buffer.kind].append((entry, buffer.owner))
                case BufferKind.ARENA if number in planned:
                    found[buffer.kind].append((entry, planned[number]))
                case BufferKind.WEIGHT | BufferKind.CONSTANT | BufferKind.DERIVED:
                    found[BufferKind.WEIGHT].append((entry, number))
        return cls(
            inputs=tuple(found[BufferKind.INPUT]),
            outputs=tuple(found[BufferKind.OUTPUT]),
            copies=tuple(copies),
            states=tuple(found[BufferKind.STATE]),
            following=tuple(found[BufferKind.NEXT]),
            fixed=tuple(found[BufferKind.WEIGHT]),
            arena=np.array(found[BufferKind.ARENA], np.int64).reshape(-1, 2).T,
            hidden=tuple(hidden),
        )


class Frame:
    """Rows, table of addresses and run record for runs with the same arrays in the same order.

    `values` are the quantities that the rows hold now. What does not change with the dims, as the
    addresses of weights, stays from run to run.
    """

    def __init__(self, program: Program, rows: LaunchRows, table: Table) -> None:
        self._program = program
        self._source = rows
        self.table = table
        self.values: Sequence[int] | None = None
        self.rows = rows.make()
        self._addresses = np.zeros(len(program.table), np.uint64)
        self.slots = memoryview(self._addresses)  # type: ignore[arg-type]
        self.hidden: dict[int, Array] = {}  # outputs that nobody takes, by buffer
        self._record = team.run_record(
            self.rows.launches, self.rows.slot_refs, self._addresses, max_threads=1
        )
        self.record_address: int = self._record.ctypes.data
        self.weights_stamp = -1
        self.scratch_stride = 0
        self.memory: object = None  # what the addresses of arena and scratch were made for

    def fill(self, values: Sequence[int], dims: Mapping[str, int]) -> None:
        """Writes the numbers of these dims, and makes room for outputs that nobody takes."""
        self.values = None
        self._source.fill(self.rows, values)
        self.scratch_stride = self._source.scratch_stride(values)
        if config.get("LUMINAL_VERIFY"):
            team.verify(self.rows.launches, self.rows.slot_refs, len(self._program.table))
        for entry, number in self.table.hidden:
            size = self._program.buffers[number].bytes.evaluate(dims)
            if number not in self.hidden or self.hidden[number].nbytes < size:
                self.hidden[number] = aligned_empty((size,), uint8)
            self.slots[entry] = address(self.hidden[number])
        self.values = values

    def take_weights(self, prologue: Prologue) -> None:
        """Writes the addresses of weights, literals and derived weights."""
        for entry, number in self.table.fixed:
            self.slots[entry] = prologue.addresses[number]
        self.weights_stamp = prologue.stamp

    def take_memory(
        self, placement: Placement, threads: int, wakes: bool, arena: Array, scratch: Array
    ) -> None:
        """Writes the addresses of all that lies in the arena, and of the threads' scratch."""
        entries, places = self.table.arena
        self._addresses[entries] = address(arena) + np.array(placement.offsets, np.uint64)[places]
        start = address(scratch)
        self._record["scratch"] = start + -start % CACHE_LINES
        self._record["scratch_stride"] = self.scratch_stride
        self._record["max_threads"] = threads
        self._record["wakes"] = wakes

    def timed_record(self, nanoseconds: NDArray[np.int64]) -> NDArray[Any]:
        """The run record with a place for the time of every row."""
        record = self._record.copy()
        record["times"] = nanoseconds.ctypes.data
        return record

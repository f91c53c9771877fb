"""The native records of a Program's runs: made once, filled in place when the dims change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.backends.cpu import team
from luminal.backends.cpu.launch_rows import CACHE_LINES, LaunchRows
from luminal.base import config
from luminal.base.dtypes import uint8
from luminal.memory.arrays import Array, HostBuffer, address, aligned_empty
from luminal.program.launch_list import Program
from luminal.program.memory_plan import Placement
from luminal.runtime.prologue import Prologue
from luminal.runtime.table import Table


# One set of records serves all bindings of a program. Filling it in place costs 5 us for a
# decoder's step, whose `past` is new with every token; records of its own for each binding would
# cost 45.
class Frame:
    """Rows, table of addresses and run record for runs with the same arrays in the same order.

    `values` are the quantities that the rows hold now. What does not change with the dims, as the
    addresses of weights, stays from run to run. A run takes `inputs` arrays, then gives others.
    """

    def __init__(self, program: Program, rows: LaunchRows, table: Table, inputs: int) -> None:
        self._program = program
        self._source = rows
        self.table = table
        self.has_states = bool(table.states or table.following)
        self.values: Sequence[int] | None = None
        self.rows = filled = rows.make()
        self._addresses = np.zeros(len(program.table), np.uint64)
        # A memoryview writes one number in half of the time that indexing a NumPy array takes.
        self.slots = memoryview(self._addresses)  # type: ignore[arg-type]
        self.hidden: dict[int, Array] = {}  # outputs that nobody takes, by buffer
        pairs = [*table.inputs, *((entry, inputs + k) for entry, k in table.outputs)]
        self._places = np.array(pairs, np.int64).reshape(-1, 2)
        self._record = team.run_record(
            filled.launches, filled.slot_refs, self._addresses, 1, places=self._places
        )
        self.record_address: int = self._record.ctypes.data
        self.weights_stamp = -1
        self.scratch_stride = 0
        self.ready_for: object = None  # whose runs need nothing but arrays until a weight changes
        self.threads, self.memory_stamp = 0, -1  # what `take_memory` was told of; 0: nothing yet

    def fill(self, values: Sequence[int], dims: Mapping[str, int]) -> None:
        """Writes the numbers of these dims, and makes room for outputs that nobody takes."""
        # First of all: should what follows fail half-way, the frame must not pass for one of either
        # binding.
        self.values, self.threads = None, 0
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

    def take_weights(self, prologue: Prologue[HostBuffer]) -> None:
        """Writes the addresses of weights, literals and derived weights."""
        for entry, number in self.table.fixed:
            self.slots[entry] = prologue.buffers[number].address
        self.weights_stamp = prologue.stamp

    def take_memory(
        self, placement: Placement, threads: int, wakes: bool, arena: Array, scratch: Array
    ) -> None:
        """Writes the addresses of all that lies in the arena, and of the threads' scratch."""
        entries, places = self.table.arena
        self._addresses[entries] = address(arena) + np.array(placement.offsets, np.uint64)[places]
        start = address(scratch)
        # Aligned to what two threads must not share, or each store of one would take the line from
        # the other.
        self._record["scratch"] = start + -start % CACHE_LINES
        self._record["scratch_stride"] = self.scratch_stride
        self._record["max_threads"] = threads
        self._record["wakes"] = wakes
        self.threads = threads

    def point_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Writes the addresses of a run's arrays."""
        slots = self.slots
        for entry, k in self.table.inputs:
            slots[entry] = inputs[k]
        for entry, k in self.table.outputs:
            slots[entry] = outputs[k]

    def timed_record(self, nanoseconds: NDArray[np.int64]) -> NDArray[Any]:
        """The run record with a place for the time of every row."""
        record = self._record.copy()
        record["times"] = nanoseconds.ctypes.data
        return record

"""The CPU's runner: a Program compiled to native code and run by the team of threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal import config
from luminal.backends.cpu import kernels, peaks, team
from luminal.backends.cpu.compiler import LoadedCode
from luminal.backends.cpu.hand_written import PythonCalls, PythonCode
from luminal.backends.cpu.launch_ir import KERNEL
from luminal.backends.cpu.launch_rows import CACHE_LINES, Filled, LaunchRows
from luminal.backends.cpu.prologue import Prologue
from luminal.dtypes import uint8
from luminal.hlir.state import State, aligned_empty
from luminal.kernel import tile_ir
from luminal.kernel.tile_ir import Kernel
from luminal.program import memory_plan, verify
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Program
from luminal.program.memory_plan import Placement
from luminal.program.quantities import Quantities
from luminal.runtime.arrays import Array, address
from luminal.runtime.output_pool import block_bytes
from luminal.runtime.report import Report, WorkMemory
from luminal.runtime.roofline import Peaks
from luminal.runtime.runner import Times
from luminal.target import Target

TEAM_GAIN = 50e-6
"""Seconds a team must save to be worth it: a worker asleep takes 36-130 us to wake."""

# Guesses of one core's speed; they only decide between alone and team.
BYTES_PER_SECOND = 10e9
CACHED_BYTES_PER_SECOND = 40e9  # of programs whose operands fit into half the last cache
MEETING_SECONDS = 1e-6  # what a launch costs a team: barrier and uneven shares
FLOPS_PER_LANE = 1e9  # per second, of elementwise code
TILE_SPEEDUP = 4  # of contractions: those have more than TILE_INTENSITY flops to a byte
TILE_INTENSITY = 8

MAX_PLACEMENTS = 8  # of arenas, kept while dims come and go


class CpuRunner:
    """A Program with its code, arena and derived weights. One run at a time (the caller's lock)."""

    def __init__(self, program: Program, target: Target) -> None:
        self.program = program
        self.target = target
        if config.get("LUMINAL_VERIFY"):
            verify.verify(program)
        texts = [tile_ir.to_text(kernel) for kernel in program.kernels]
        self.python = PythonCalls()
        self._code = [*map(self._build, program.kernels, texts)]
        functions = [code.address for code in self._code]
        self.quantities = Quantities(tuple(dim.name for dim in program.dims))
        self.rows = LaunchRows(program, program.launches, functions, self.quantities)
        self.prologue = Prologue(program, texts, functions)
        self.plan = memory_plan.plan(program, program.launches)
        self._sizes = [self.quantities.add(program.buffers[b].bytes) for b in self.plan.buffers]
        self._placements: list[Placement] = []
        self._small: dict[tuple[int, ...], bool] = {}
        self._tables: dict[tuple[tuple[str, ...], tuple[str, ...]], Table] = {}
        self.arena = aligned_empty((0,), uint8)
        self.scratch = aligned_empty((0,), uint8)
        self.memory_stamp = 0  # counts their replacements

    def bind(
        self, dims: Mapping[str, int], inputs: Sequence[str], outputs: Sequence[str]
    ) -> BoundCpu:
        """The launches with their numbers for these dims."""
        values = self.quantities.evaluate(dims)
        has_python = any(isinstance(code, PythonCode) for code in self._code)
        bound = BoundPython if has_python else BoundCpu
        return bound(self, dict(dims), values, self.table(inputs, outputs))

    def _build(self, kernel: Kernel, text: str) -> LoadedCode | PythonCode:
        if kernel.call is not None and kernel.call.is_python:
            return PythonCode(kernel, kernel.call, self.python)
        return kernels.build(kernel, text, self.target)

    def peaks(self) -> Peaks:
        """What this machine's threads reach together."""
        return peaks.peaks(self.target, team.team_size_default())

    def memory(self) -> WorkMemory:
        """The arena, scratch and derived weights held now."""
        return WorkMemory(self.prologue.nbytes, self.arena.nbytes, self.scratch.nbytes)

    def reserve(self, arena_bytes: int, scratch_bytes: int) -> None:
        """Grows the arena and the scratch; they never shrink."""
        if self.arena.nbytes < arena_bytes:
            self.arena = aligned_empty((arena_bytes,), uint8)
            self.memory_stamp += 1
        if self.scratch.nbytes < scratch_bytes:
            self.scratch = aligned_empty((scratch_bytes,), uint8)
            self.memory_stamp += 1

    def table(self, inputs: Sequence[str], outputs: Sequence[str]) -> Table:
        """What the entries of the table hold, when a run takes and gives arrays in this order."""
        key = (tuple(inputs), tuple(outputs))
        if key not in self._tables:
            self._tables[key] = Table.of(self, inputs, outputs)
        return self._tables[key]

    def is_small(self, filled: Filled, dims: Mapping[str, int]) -> bool:
        """Whether a team would save too little: launches have few chunks, or little work.

        Decided once for dims of the same magnitude: a decoder's grow with every token.
        """
        magnitude = tuple([value.bit_length() for value in dims.values()])
        if magnitude not in self._small:
            self._small[magnitude] = self._saves_little(filled)
        return self._small[magnitude]

    def _saves_little(self, filled: Filled) -> bool:
        speed = FLOPS_PER_LANE * self.target.vector_lanes(4)
        is_tile = filled.flops > TILE_INTENSITY * filled.bytes
        computing = filled.flops / np.where(is_tile, TILE_SPEEDUP * speed, speed)
        cached = filled.bytes.sum() < self.target.l3_bytes / 2
        moving = filled.bytes / (CACHED_BYTES_PER_SECOND if cached else BYTES_PER_SECOND)
        shares = np.clip(filled.chunks, 1, team.team_size_default())
        saved = np.maximum(computing, moving) * (1 - 1 / shares) - MEETING_SECONDS
        return bool(saved.sum() < TEAM_GAIN)

    def placement(self, values: Sequence[int]) -> Placement:
        """A placement of buffers at least this big: an old one, unless it is twice too big.

        Sizes are rounded up, so that a growing dim (a decoder's `past`) seldom needs a new one.
        """
        sizes = tuple([block_bytes(values[number]) for number in self._sizes])
        for known in self._placements:
            if known.sizes == sizes:
                return known
        for known in self._placements:
            fits = all(n <= m for n, m in zip(sizes, known.sizes, strict=True))
            if fits and sum(known.sizes) <= 2 * sum(sizes):
                return known
        placement = memory_plan.place(self.plan, sizes)
        if config.get("LUMINAL_VERIFY"):
            verify.verify_placement(self.program, self.program.launches, self.plan, placement)
        self._placements = [placement, *self._placements[: MAX_PLACEMENTS - 1]]
        return placement


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What the entries of a Program's table hold: (entry, which array) by kind of buffer."""

    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]
    copies: tuple[tuple[int, int], ...]  # outputs of one buffer: (from, to)
    states: tuple[tuple[int, State], ...]
    following: tuple[tuple[int, State], ...]
    fixed: tuple[tuple[int, int], ...]  # weights, literals, derived: (entry, buffer)
    arena: NDArray[np.int64]  # (2, n): entries, places in the memory plan
    hidden: tuple[tuple[int, int], ...]  # outputs that nobody takes: (entry, buffer)

    @classmethod
    def of(cls, runner: CpuRunner, inputs: Sequence[str], outputs: Sequence[str]) -> Table:
        """`inputs` and `outputs`: the names of a run's arrays, in order."""
        program = runner.program
        place = {name: k for k, name in enumerate(outputs)}
        first: dict[int, int] = {}
        copies = []
        for output in program.outputs:
            if output.name in place:
                k = place[output.name]
                if first.setdefault(output.buffer, k) != k:
                    copies.append((first[output.buffer], k))
        planned = {number: k for k, number in enumerate(runner.plan.buffers)}
        found: dict[BufferKind, list[tuple[int, Any]]] = {kind: [] for kind in BufferKind}
        hidden = []
        for entry, number in enumerate(program.table):
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


class BoundCpu:
    """A Program for one binding of its dims; a run writes addresses and enters native code.

    What a run needs is made by the first one: a report may ask for dims that no memory could hold.
    """

    def __init__(
        self, runner: CpuRunner, dims: dict[str, int], values: Sequence[int], table: Table
    ) -> None:
        self._runner = runner
        self._dims = dims
        self._values = values
        self._table = table
        self._alone = False  # known once the rows are filled
        self._addresses = np.zeros(len(runner.program.table), np.uint64)
        self._slots = memoryview(self._addresses)  # type: ignore[arg-type]
        self._filled: Filled | None = None
        self._hidden: list[Array] = []
        self._weights_stamp = -1  # which weights, and which memory, the addresses are of
        self._memory_stamp = -1
        self._threads = 0
        self._record: NDArray[Any] | None = None
        self._record_address = 0
        self._enter: Callable[[int], Any] = team.entry()

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Enters native code once; what follows cannot fail."""
        self._point(inputs, outputs)
        self._enter(self._record_address)
        self._finish(outputs)

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> Times:
        """Runs, with a barrier after every launch and the clock read there.

        The seconds of each launch site, a row for each run: sites in the report's order, one in a
        Loop with all its trips. Between two runs a State moves on, as ever.
        """
        self._point(inputs, outputs)
        assert self._filled is not None
        launches = self._filled.launches
        nanoseconds = np.zeros((runs, len(launches)), np.int64)
        for row in nanoseconds:
            self._point(inputs, outputs)
            assert self._record is not None
            record = self._record.copy()
            record["times"] = row.ctypes.data
            self._enter(record.ctypes.data)
            self._finish(outputs)
        return nanoseconds[:, launches["kind"] == KERNEL] * 1e-9

    def report(self) -> Report:
        """The launches of one run."""
        runner = self._runner
        return Report(self._dims, runner.rows.report(self._values), runner.prologue.report())

    def _point(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Makes the record and the table ready for a run with these arrays."""
        runner, table, slots = self._runner, self._table, self._slots
        if self._filled is None:
            self._fill()
        if runner.prologue.refresh() != self._weights_stamp:
            self._take_weights()
        threads = 1 if self._alone else team.team_size_default()
        if threads != self._threads or runner.memory_stamp != self._memory_stamp:
            self._take_memory(threads)
        for entry, k in table.inputs:
            slots[entry] = address(inputs[k])
        for entry, k in table.outputs:
            slots[entry] = address(outputs[k])
        for entry, state in table.states:
            slots[entry] = address(state.buffer)
        for entry, state in table.following:
            slots[entry] = address(_spare(state))

    def _finish(self, outputs: Sequence[Array]) -> None:
        """What a run leaves to do: States change buffers, an output given twice is copied."""
        for state in self._runner.program.swaps:
            state.buffer, state.spare = _spare(state), state.buffer
        for source, copy in self._table.copies:
            outputs[copy][...] = outputs[source]

    def _take_weights(self) -> None:
        prologue = self._runner.prologue
        for entry, number in self._table.fixed:
            self._slots[entry] = prologue.addresses[number]
        self._weights_stamp = prologue.stamp

    def _take_memory(self, threads: int) -> None:
        """Reserves arena and scratch, and makes the record that points to them."""
        runner = self._runner
        assert self._filled is not None
        placement = runner.placement(self._values)
        launches, slot_refs = self._filled.launches, self._filled.slot_refs
        stride = self._filled.scratch_stride
        runner.reserve(placement.arena_bytes, threads * stride + CACHE_LINES)
        arena, scratch = address(runner.arena), address(runner.scratch)
        entries, places = self._table.arena
        self._addresses[entries] = arena + np.array(placement.offsets, np.uint64)[places]
        scratch += -scratch % CACHE_LINES
        self._record = team.run_record(
            launches, slot_refs, self._addresses, threads, scratch, stride
        )
        self._record_address = self._record.ctypes.data
        self._memory_stamp, self._threads = runner.memory_stamp, threads

    def _fill(self) -> None:
        """Looks up the numbers of the rows, and makes room for outputs that nobody takes."""
        runner = self._runner
        self._filled = filled = runner.rows.fill(self._values)
        self._alone = runner.is_small(filled, self._dims)
        if config.get("LUMINAL_VERIFY"):
            team.verify(filled.launches, filled.slot_refs, len(runner.program.table))
        for entry, number in self._table.hidden:
            size = runner.program.buffers[number].bytes.evaluate(self._dims)
            self._hidden.append(aligned_empty((size,), uint8))
            self._slots[entry] = address(self._hidden[-1])


class BoundPython(BoundCpu):
    """A program with kernels in Python: one may raise, or ask for the program it is part of.

    The error comes out before any State has changed buffers, and none was overwritten.
    """

    def __init__(
        self, runner: CpuRunner, dims: dict[str, int], values: Sequence[int], table: Table
    ) -> None:
        super().__init__(runner, dims, values, table)
        self._enter = partial(self._call, self._enter)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        with self._runner.python.alone():
            super().run(inputs, outputs)

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> Times:
        with self._runner.python.alone():
            return super().profile(inputs, outputs, runs)

    def _call(self, entry: Callable[[int], Any], record: int) -> None:
        assert self._filled is not None
        self._runner.python.enter(entry, record, self._filled.launches)


def _spare(state: State) -> Array:
    """The State's second buffer, made at first use."""
    if state.spare is None:
        state.spare = aligned_empty(state.shape, state.dtype)
    return state.spare

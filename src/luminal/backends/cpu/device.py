"""The CPU's runner: a Program compiled to native code and run by the team of threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from luminal.backends.cpu import kernels, peaks, team
from luminal.backends.cpu.clocked import Bars
from luminal.backends.cpu.collective_calls import codes
from luminal.backends.cpu.frame import Frame
from luminal.backends.cpu.hand_written import PythonCalls, PythonCode
from luminal.backends.cpu.launch_ir import KERNEL
from luminal.backends.cpu.launch_rows import CACHE_LINES, LaunchRows
from luminal.backends.cpu.linker import LoadedCode
from luminal.backends.cpu.prologue import derive
from luminal.backends.cpu.target import CpuTarget
from luminal.backends.cpu.team_arrays import CHECKED
from luminal.base import config
from luminal.base.dtypes import DType, uint8
from luminal.base.forks import cached_property
from luminal.kernel import tile_text
from luminal.kernel.tile_ir import Kernel
from luminal.memory.arrays import HOST, Array, aligned_empty
from luminal.memory.parameter import Parameter
from luminal.memory.poison import poison
from luminal.memory.state import exchange, spare_on
from luminal.program import verify
from luminal.program.launch_list import Program
from luminal.program.memory_plan import Placement
from luminal.program.quantities import Quantities
from luminal.runtime.clocks import Clocked
from luminal.runtime.interface import Interface, Intervals
from luminal.runtime.on_ranks import Ranks, text_of
from luminal.runtime.placements import Placements
from luminal.runtime.prologue import Prologue
from luminal.runtime.ranks import Engines
from luminal.runtime.recognition import Familiar, Recognized, Recognizer
from luminal.runtime.report import Report, WorkMemory
from luminal.runtime.roofline import Peaks
from luminal.runtime.runner import Times, on_host
from luminal.runtime.sites import Sites, Work
from luminal.runtime.table import Table
from luminal.schedule.vectors import costs

TEAM_GAIN = 50e-6
"""Seconds a team must save to be worth waking: a worker asleep takes 36-130 us."""
AWAKE_GAIN = 5e-6
"""Seconds a team of workers that still spin must save."""

TILE_INTENSITY = 8
"""Operations to a byte, of which contractions have more."""


class CpuRunner:
    """A Program with its code, arena and derived weights. One run at a time (the caller's lock)."""

    def __init__(self, program: Program, target: CpuTarget) -> None:
        self.program = program
        self.target = target
        if config.get("LUMINAL_VERIFY"):
            verify.verify(program)
        texts = [tile_text.to_text(kernel) for kernel in program.kernels]
        self.python = PythonCalls()
        self.code = [*map(self._build, program.kernels, texts)]
        has_python = any(isinstance(code, PythonCode) for code in self.code)
        self.ranks = Ranks(program.launches)
        self.collectives = codes(self.ranks.launches, self.ranks, self.python)
        # Programs without Python kernels, nearly all, should not pay for counting and copying what
        # only those need.
        self._bound = BoundPython if has_python else BoundCpu
        if self.collectives:
            self._bound = BoundRanks
        # Addresses only: that the code stays loaded is what `self.code` is kept for.
        functions = [code.address for code in self.code]
        self.quantities = Quantities(tuple(dim.name for dim in program.dims))
        self.rows = LaunchRows(
            program, program.launches, functions, self.quantities,
            {launch: code.address for launch, code in self.collectives.items()},
        )  # fmt: skip
        self.sites = Sites(program, program.launches, self.quantities)
        self.prologue = Prologue(program, texts, HOST, partial(derive, program, functions))
        self.placements = Placements(program, self.quantities)
        self._savings: dict[tuple[int, ...], float] = {}
        self._frames: dict[tuple[tuple[str, ...], tuple[str, ...]], Frame] = {}
        self.arena = aligned_empty((0,), uint8)
        self.scratch = aligned_empty((0,), uint8)
        self.memory_stamp = 0  # counts their replacements
        self.poisons = config.get("LUMINAL_POISON")

    def bind(
        self, dims: Mapping[str, int], inputs: Sequence[str], outputs: Sequence[str]
    ) -> BoundCpu:
        """The launches with their numbers for these dims."""
        values = self.quantities.evaluate(dims)
        return self._bound(self, dict(dims), values, self._frame(inputs, outputs))

    def _build(self, kernel: Kernel, text: str) -> LoadedCode | PythonCode:
        if kernel.call is not None and kernel.call.is_python:
            return PythonCode(kernel, kernel.call, self.python)
        return kernels.build(kernel, text, self.target)

    def join(self, engines: Engines) -> None:
        """Takes the engines that runs use. Raises InputError where they do not fit the program."""
        self.ranks.join(engines)

    def stand_alone(self) -> None:
        """Lets runs copy operands where ranks would do something together: to be timed."""
        self.ranks.is_alone = True

    def export(
        self,
        file: BinaryIO,
        interface: Interface,
        variants: Sequence[tuple[Intervals, Any]],
        weights: BinaryIO | None,
    ) -> None:
        """Writes programs of one graph, this one among them, as a library."""
        from luminal.backends.cpu.export import write_library

        write_library(file, interface, variants, weights)

    def worth(self, awake: bool) -> float:
        """The seconds that a team must save to be used: of workers `awake`, or of any."""
        return AWAKE_GAIN if awake else TEAM_GAIN

    def peaks(self) -> Peaks:
        """What this machine's threads reach together."""
        return peaks.peaks(self.target, team.team_size_default())

    def memory(self) -> WorkMemory:
        """The arena, scratch and derived weights held now."""
        return WorkMemory(self.prologue.nbytes, self.arena.nbytes, self.scratch.nbytes)

    def abandon_run(self) -> None:
        """Drops all records: a run under way may have emptied its grids (see PythonCalls.stop)."""
        self._frames.clear()
        self.python.abandon()

    def reserve(self, arena_bytes: int, scratch_bytes: int) -> None:
        """Grows the arena and the scratch, which all frames point to; they never shrink."""
        before = self.memory_stamp
        if self.arena.nbytes < arena_bytes:
            self.arena = aligned_empty((arena_bytes,), uint8)
            self.memory_stamp += 1
        if self.scratch.nbytes < scratch_bytes:
            self.scratch = aligned_empty((scratch_bytes,), uint8)
            self.memory_stamp += 1
        if self.memory_stamp != before:
            for frame in self._frames.values():
                frame.ready_for = None

    # Frames hold addresses in the old memory, so each has to be made ready again before its next
    # run.
    def _frame(self, inputs: Sequence[str], outputs: Sequence[str]) -> Frame:
        """The records of runs that take and give arrays in this order."""
        key = (tuple(inputs), tuple(outputs))
        if key not in self._frames:
            table = Table.of(self.program, self.placements.plan, inputs, outputs)
            self._frames[key] = Frame(self.program, self.rows, table, len(inputs))
        return self._frames[key]

    # A sleeping thread takes 36 to 130 microseconds to wake, so a small program runs on the caller
    # alone. In a loop of small programs the worker is roused on the side and joins from the next
    # call on, while it still spins.
    def saving(self, values: Sequence[int], dims: Mapping[str, int]) -> float:
        """Seconds that a team would save: few if launches have few chunks, or little work.

        Estimated once for dims of the same magnitude: a decoder's grow with every token.
        """
        magnitude = tuple([value.bit_length() for value in dims.values()])
        if magnitude not in self._savings:
            self._savings[magnitude] = self._saving(self.sites.work(values))
        return self._savings[magnitude]

    def _saving(self, work: Work) -> float:
        rates = costs.of(self.target)
        is_tile = work.flops > TILE_INTENSITY * work.bytes
        speed = np.where(is_tile, rates.contraction_flops, rates.pointwise_flops)
        computing = work.flops / speed
        moving = work.bytes / rates.moving(work.bytes.sum())
        shares = np.clip(work.chunks, 1, team.team_size_default())
        meeting = rates.launch * work.trips
        saved = np.maximum(computing, moving) * (1 - 1 / shares) - meeting
        return float(saved.sum())


class BoundCpu:
    """A Program for one binding of its dims; a run writes addresses and enters native code.

    What a run needs is made by the first one: a report may ask for dims that no memory could hold.
    """

    def __init__(
        self, runner: CpuRunner, dims: dict[str, int], values: Sequence[int], frame: Frame
    ) -> None:
        self._runner = runner
        self._dims = dims
        self._values = values
        self._frame = frame
        self._shares = self._wakes = False  # is a team worth it, also one that sleeps?
        self._placement: Placement | None = None
        self._newest: int | None = None  # version of any Parameter, when the frame was made ready
        self._poisons = runner.poisons
        self._swaps = runner.program.swaps
        self._point = team.native().point
        self._enter: Callable[[int], Any] = team.entry()

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Enters native code once; what follows cannot fail."""
        frame = self._frame
        if frame.ready_for is not self or self._newest != Parameter.newest:
            self._prepare()
        if self._poisons:
            self._poison(outputs)
        self._point(frame.record_address, inputs, outputs)
        self._enter(frame.record_address)
        if self._swaps:
            self._finish()

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Runs once, with the addresses of the arrays."""
        frame = self._frame
        if frame.ready_for is not self or self._newest != Parameter.newest:
            self._prepare()
        if self._poisons:
            self._poison()
        frame.point_at(inputs, outputs)
        self._enter(frame.record_address)
        self._finish()

    def seconds(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> float:
        """The seconds of `runs` runs by the host's clock."""
        return on_host(self, inputs, outputs, runs)

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> Times:
        """Runs, with a barrier after every launch and the clock read there.

        The seconds of each launch site, a row for each run: sites in the report's order, one in a
        Loop with all its trips. Between two runs a State moves on, as ever.
        """
        launches = self._frame.rows.launches
        nanoseconds = np.zeros((runs, len(launches)), np.int64)
        for row in nanoseconds:
            self._prepare()
            if self._poisons:
                self._poison(outputs)
            self._point(self._frame.record_address, inputs, outputs)
            record = self._frame.timed_record(row)
            self._enter(record.ctypes.data)
            self._finish()
        return nanoseconds[:, launches["kind"] == KERNEL] * 1e-9

    def clocked(self, inputs: Sequence[Any], outputs: Sequence[Any], at: bool = False) -> Clocked:
        """A run with a barrier after every launch, in which each thread notes when it worked."""
        self._prepare()
        if self._poisons:
            self._poison(() if at else outputs)
        frame = self._frame
        if at:
            frame.point_at(inputs, outputs)
        else:
            self._point(frame.record_address, inputs, outputs)
        nanoseconds = np.zeros(len(frame.rows.launches), np.int64)
        bars = Bars(frame.threads, self._launches)
        record = bars.given_to(frame.timed_record(nanoseconds))
        called = time.perf_counter_ns()
        self._enter(record.ctypes.data)
        returned = time.perf_counter_ns()
        self._finish()
        return bars.read(frame.rows.launches, called, returned, time.perf_counter_ns())

    @cached_property
    def _launches(self) -> int:
        """The launches of a run, those in Loops with all their trips."""
        return sum(row.trips for row in self._runner.sites.report(self._values))

    def report(self) -> Report:
        """The launches of one run."""
        runner = self._runner
        return Report(self._dims, runner.sites.report(self._values), runner.prologue.report())

    def can_check(self, dtype: DType) -> bool:
        """Can elements of this dtype be compared with the extent that they index?"""
        return dtype in CHECKED

    def recognizer(self, inputs: Sequence[Familiar], outputs: Sequence[Familiar]) -> Recognizer:
        """The Recognizer of calls with such arrays."""
        frame, calls = self._frame, team.calls(inputs, outputs, self._frame.record_address)
        is_native = self._enter is team.native().enter and not self._swaps

        def again(arrays: Mapping[Any, Any], outputs: Sequence[Array]) -> Recognized:
            if is_native and frame.ready_for is self and self._newest == Parameter.newest:
                if self._poisons:
                    self._poison(outputs)
                return calls.again(arrays, outputs)
            used = calls.inputs(arrays)
            if used is not False:
                self.run(used, outputs)
            return used

        return Recognizer(calls.inputs, calls.outputs, again)

    def _prepare(self) -> None:
        """Brings all up to date that does not depend on a run's arrays, and notes in the frame
        whether nothing is left to do before the next run.
        """
        runner, frame, newest = self._runner, self._frame, Parameter.newest
        frame.ready_for = None
        if runner.prologue.refresh() != frame.weights_stamp:
            frame.take_weights(runner.prologue)
        threads = team.team_size_default() if self._shares else 1
        current = frame.values is self._values and frame.threads == threads
        if not current or frame.memory_stamp != runner.memory_stamp:
            self._take_frame()
        if frame.has_states:
            slots = frame.slots
            for entry, state in frame.table.states:
                slots[entry] = state.on(HOST).address
            for entry, state in frame.table.following:
                slots[entry] = spare_on(state, HOST).address
        if not (self._shares or frame.has_states):
            frame.ready_for, self._newest = self, newest

    def _poison(self, outputs: Sequence[Array] = ()) -> None:
        """Overwrites all that a run writes before it may read it."""
        runner, frame = self._runner, self._frame
        following = [spare_on(state, HOST).array for _, state in frame.table.following]
        poison([runner.arena, runner.scratch, *frame.hidden.values(), *following, *outputs])

    def _take_frame(self) -> None:
        """Fills the frame with the numbers of these dims, and points it to arena and scratch."""
        runner, frame = self._runner, self._frame
        if frame.values is not self._values:
            frame.fill(self._values, self._dims)
        if self._placement is None:
            self._placement = runner.placements.at(self._values)
            saving = runner.saving(self._values, self._dims)
            self._wakes = saving >= TEAM_GAIN
            self._shares = self._wakes or saving >= AWAKE_GAIN
        threads, stride = team.team_size_default() if self._shares else 1, frame.scratch_stride
        try:
            runner.reserve(self._placement.arena_bytes, threads * stride + CACHE_LINES)
        except MemoryError as error:
            raise MemoryError(f"{error}; {runner.placements.whose(self._placement)}") from None
        frame.take_memory(self._placement, threads, self._wakes, runner.arena, runner.scratch)
        frame.memory_stamp = runner.memory_stamp

    def _finish(self) -> None:
        """What a run leaves to do: States change buffers."""
        for state in self._swaps:
            exchange(state, HOST)


class BoundPython(BoundCpu):
    """A program with kernels in Python: one may raise, or ask for the program it is part of.

    The error comes out before any State has changed buffers, and none was overwritten.
    """

    def __init__(
        self, runner: CpuRunner, dims: dict[str, int], values: Sequence[int], frame: Frame
    ) -> None:
        super().__init__(runner, dims, values, frame)
        self._enter = partial(self._call, self._enter)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        with self._runner.python.alone():
            super().run(inputs, outputs)

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        with self._runner.python.alone():
            super().run_at(inputs, outputs)

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> Times:
        with self._runner.python.alone():
            return super().profile(inputs, outputs, runs)

    def clocked(self, inputs: Sequence[Any], outputs: Sequence[Any], at: bool = False) -> Clocked:
        with self._runner.python.alone():
            return super().clocked(inputs, outputs, at)

    def _call(self, entry: Callable[[int], Any], record: int) -> None:
        self._runner.python.enter(entry, record, self._frame.rows.launches, self._python_calls)

    @cached_property
    def _python_calls(self) -> int:
        """The number of Python kernels and collectives that a run of these launches calls."""
        code, rows = self._runner.code, self._runner.sites.report(self._values)
        return sum(
            row.trips
            for row in rows
            if row.is_collective or (row.chunks > 0 and isinstance(code[row.kernel], PythonCode))
        )


class BoundRanks(BoundPython):
    """A program that several ranks run together. Where one of them fails, its States may be half
    those of the step before.
    """

    def _call(self, entry: Callable[[int], Any], record: int) -> None:
        ranks = self._runner.ranks
        ranks.begin(partial(text_of, self._runner.program))
        super()._call(entry, record)
        ranks.end()

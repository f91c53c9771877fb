"""The runner of every device: walks a Program's launch list over a Driver.

A run lies in one block of the device, the workspace: the arena, what the host gives and takes, and
working memory. Inputs are copied in, outputs out; weights, derived weights and States stay there.
All that can fail for want of memory is done before anything is queued.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from luminal.base import config
from luminal.base.dtypes import uint8
from luminal.base.records import dataclass
from luminal.kernel import tile_text
from luminal.kernel.tile_ir import Role
from luminal.memory.arrays import Array
from luminal.memory.state import Assignable, exchange, spare_on
from luminal.program import memory_plan, verify
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Launch, Program
from luminal.program.quantities import Quantities
from luminal.runtime.device import POISON, Device, DeviceBuffer
from luminal.runtime.device_launches import Bound, DeviceLaunches, enqueue
from luminal.runtime.driver import DevicePointer, Mark
from luminal.runtime.placements import Placements
from luminal.runtime.prologue import Prologue
from luminal.runtime.report import Report, WorkMemory
from luminal.runtime.runner import Times
from luminal.runtime.sites import Sites
from luminal.runtime.table import Table

ALIGNMENT = 256  # bytes, of what begins in a workspace: as blocks of drivers do


class DeviceRunner:
    """A Program on a device. One run at a time (the caller's lock).

    Raises CompileError for a kernel that the device cannot run.
    """

    def __init__(self, program: Program, device: Device) -> None:
        self.program = program
        self.device = device
        if config.get("LUMINAL_VERIFY"):
            verify.verify(program)
        texts = [tile_text.to_text(kernel) for kernel in program.kernels]
        self._code = [*map(device.compile, program.kernels, texts)]
        self.quantities = Quantities(tuple(dim.name for dim in program.dims))
        self.launches = self._listed(program.launches, self.quantities)
        self.sites = Sites(program.launches, self.quantities)
        self.placements = Placements(program, self.quantities)
        self.sizes = [self.quantities.add(buffer.bytes) for buffer in program.buffers]
        self.prologue = Prologue(program, texts, device, self._derive)
        self.overwritten = _overwritten(program)
        self.workspace: DeviceBuffer | None = None
        self.told: Array | None = None  # the integers that lie in the workspace
        self.poisons = config.get("LUMINAL_POISON")

    def bind(
        self, dims: Mapping[str, int], inputs: Sequence[str], outputs: Sequence[str]
    ) -> BoundDevice:
        """The launches with their numbers for these dims."""
        table = Table.of(self.program, self.placements.plan, inputs, outputs)
        return BoundDevice(self, dict(dims), self.quantities.evaluate(dims), table)

    def peaks(self) -> None:
        """Nobody has measured what the device reaches."""

    def memory(self) -> WorkMemory:
        """The workspace and derived weights held now, on the device."""
        held = 0 if self.workspace is None else self.workspace.nbytes
        return WorkMemory(self.prologue.nbytes, held)

    def abandon_run(self) -> None:
        """A workspace is written anew by each run."""

    def reserve(self, size: int) -> DevicePointer:
        """The workspace, of at least `size` bytes; it never shrinks."""
        if self.workspace is None or self.workspace.nbytes < size:
            self.workspace = self.told = None  # first the old one goes
            self.workspace = DeviceBuffer(self.device, (size,), uint8)
        return self.workspace.place

    def entries(self, places: Mapping[int, DevicePointer]) -> dict[int, DevicePointer]:
        """Places by entry of the table, from those by buffer."""
        return {entry: places[n] for entry, n in enumerate(self.program.table) if n in places}

    def _listed(self, launches: tuple[Launch, ...], quantities: Quantities) -> DeviceLaunches:
        return DeviceLaunches(launches, self._code, self.device.driver, quantities)

    def _derive(self, launches: tuple[Launch, ...], buffers: Mapping[int, DeviceBuffer]) -> None:
        """Runs launches of the prologue, as a Prologue asks for it."""
        quantities = Quantities(())
        listed = self._listed(launches, quantities)
        values = quantities.evaluate({})
        bound = listed.bind(values)
        plan = memory_plan.plan(self.program, launches)
        sizes = [self.program.buffers[number].bytes.value for number in plan.buffers]
        placement = memory_plan.place(plan, sizes)
        start = _aligned(placement.arena_bytes)
        row = start + _aligned(listed.scratch_bytes(values))
        memory = self.device.empty((row + listed.integer_bytes,), uint8)
        places = {number: buffer.place for number, buffer in buffers.items()}
        for number, offset in zip(plan.buffers, placement.offsets, strict=True):
            places[number] = DevicePointer(memory.block, offset)
        table = self.entries(places)
        with self.device.entered() as driver:
            integers = DevicePointer(memory.block, row)
            driver.write(integers, listed.integers(values))
            enqueue(driver, bound, table, integers, DevicePointer(memory.block, start))
            driver.wait()


@dataclass(frozen=True, slots=True)
class _Workspace:
    """The offsets of a run's buffers, in bytes from the workspace's start; `size` of it all."""

    offsets: dict[int, int]  # by buffer
    integers: int
    scratch: int
    size: int


# A run waits for its end before States change hands, also where no output asks for that: errors
# then come out of the call that made them, and a State is old or new, never half.
class BoundDevice:
    """A Program for one binding of its dims. What a run needs is made by the first one."""

    def __init__(
        self, runner: DeviceRunner, dims: dict[str, int], values: Sequence[int], table: Table
    ) -> None:
        self._runner = runner
        self._dims = dims
        self._values = values
        self._table = table
        self._inputs = self._by_buffer(table.inputs)
        self._outputs = self._by_buffer(table.outputs)
        self._made: tuple[Bound, Array, _Workspace] | None = None

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Runs once, as `BoundRunner.run` says. If it fails while a State is overwritten where it
        lies, that State has no value until it is set.
        """
        self._run(inputs, outputs, None)

    def seconds(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> float:
        """The device's seconds, from a run's first launch to the end of its last."""
        total = 0.0
        for _ in range(runs):
            marks: list[tuple[int, Mark]] = []
            # Two marks only: a mark after each launch takes time of its own, which a search would
            # count as the kernels'.
            self._run(inputs, outputs, marks, marks_each=False)
            (_, first), (_, last) = marks
            with self._runner.device.entered() as driver:
                total += driver.seconds(first, last)
        return total

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> Times:
        """Runs, with a mark after every launch: the device's seconds."""
        times = np.zeros((runs, len(self._runner.sites)))
        for row in times:
            marks: list[tuple[int, Mark]] = []
            self._run(inputs, outputs, marks)
            with self._runner.device.entered() as driver:
                for (_, first), (site, last) in itertools.pairwise(marks):
                    row[site] += driver.seconds(first, last)
        return times

    def report(self) -> Report:
        """The launches of one run."""
        runner = self._runner
        return Report(self._dims, runner.sites.report(self._values), runner.prologue.report())

    def _run(
        self,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        marks: list[tuple[int, Mark]] | None,
        marks_each: bool = True,
    ) -> None:
        """`marks` takes the start, and the end of every launch with its site; or the end of all."""
        # All that can fail for want of memory comes before the first launch is queued, so that a
        # run that raises leaves States as they were. From there on a State is marked half-written
        # until the device has said that all is done: half a value is never read.
        runner, device = self._runner, self._runner.device
        if self._made is None:
            self._made = self._make()
        bound, integers, workspace = self._made
        runner.prologue.refresh()
        kept_buffers = self._own_buffers()
        overwritten = [state.on(device) for state in runner.overwritten]
        following = [spare_on(state, device) for state in runner.program.swaps]
        block = runner.reserve(workspace.size).block
        places = {
            number: DevicePointer(block, offset) for number, offset in workspace.offsets.items()
        }
        table = runner.entries(
            places | {number: buffer.place for number, buffer in kept_buffers.items()}
        )
        with device.entered() as driver:
            if runner.poisons:
                driver.fill(DevicePointer(block), workspace.size, POISON)
                for buffer in following:
                    driver.fill(buffer.place, buffer.nbytes, POISON)
            row = DevicePointer(block, workspace.integers)
            if runner.poisons or runner.told is not integers:
                driver.write(row, integers)
                runner.told = integers
            for number, k in self._inputs.items():
                driver.write(places[number], inputs[k])
            for buffer in overwritten:
                # From here on a failure leaves half a value, which nobody may read.
                buffer.is_whole = False
            if marks is not None:
                marks.append((-1, driver.mark()))
            scratch = DevicePointer(block, workspace.scratch)
            enqueue(driver, bound, table, row, scratch, marks if marks_each else None)
            if marks is not None and not marks_each:
                marks.append((-1, driver.mark()))
            for number, k in self._outputs.items():
                driver.read(places[number], outputs[k])
            driver.wait()
            for buffer in overwritten:
                buffer.is_whole = True
        for state in runner.program.swaps:
            # Only a run that came to its end moves States on.
            exchange(state, device)
        # A value under two names is computed and read from the device once.
        for source, copy in self._table.copies:
            outputs[copy][...] = outputs[source]

    def _by_buffer(self, entries: Iterable[tuple[int, int]]) -> dict[int, int]:
        table = self._runner.program.table
        return {table[entry]: k for entry, k in entries}

    def _own_buffers(self) -> dict[int, DeviceBuffer]:
        """What lies on the device between runs, by the Program's buffers; States are brought."""
        runner, table = self._runner, self._table
        numbers, device = runner.program.table, runner.device
        buffers = {number: runner.prologue.buffers[number] for _, number in table.fixed}
        for entry, state in table.states:
            buffers[numbers[entry]] = buffer = state.on(device)
            buffer.check()
        for entry, state in table.following:
            buffers[numbers[entry]] = spare_on(state, device)
        return buffers

    def _make(self) -> tuple[Bound, Array, _Workspace]:
        runner = self._runner
        launches = runner.launches
        placement = runner.placements.at(self._values)
        offsets = dict(zip(runner.placements.plan.buffers, placement.offsets, strict=True))
        end = placement.arena_bytes
        hidden = [number for _, number in self._table.hidden]
        for number in (*self._inputs, *self._outputs, *dict.fromkeys(hidden)):
            offsets[number] = _aligned(end)
            end = offsets[number] + self._values[runner.sizes[number]]
        row = _aligned(end)
        scratch = _aligned(row + launches.integer_bytes)
        workspace = _Workspace(
            offsets, row, scratch, scratch + launches.scratch_bytes(self._values)
        )
        return launches.bind(self._values), launches.integers(self._values), workspace


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _overwritten(program: Program) -> tuple[Assignable, ...]:
    """The States that runs write where they lie."""
    states: dict[Assignable, None] = {}
    for launch in program.launches:
        for number, role in program.accesses(launch):
            buffer = program.buffers[number]
            if buffer.kind is BufferKind.STATE and role is not Role.IN:
                assert isinstance(buffer.owner, Assignable)
                states[buffer.owner] = None
    return tuple(states)

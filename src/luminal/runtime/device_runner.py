"""The runner of every device: queues a Program's launch list with a Driver.

A run lies in one block of the device, the workspace: what the host gives and takes, the arena, and
working memory. Inputs are copied in, outputs out; weights, derived weights and States stay there.
All that can fail for want of memory is done before anything is queued. A list that comes again with
the same addresses is recorded, where the device can, and is then one call.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from luminal.base import config
from luminal.base.dtypes import uint8
from luminal.base.errors import CompileError
from luminal.base.forks import cached_property
from luminal.kernel import tile_text
from luminal.kernel.tile_ir import Role
from luminal.memory.arrays import Array
from luminal.memory.state import Assignable, State, exchange, spare_on
from luminal.program import memory_plan, verify
from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Launch, Program
from luminal.program.quantities import Quantities
from luminal.program.task_list import Stamped
from luminal.runtime import device_clocks, task_trace
from luminal.runtime.by_host import ByHost, carries
from luminal.runtime.clocks import Clocked
from luminal.runtime.collectives.communicator import Communicator
from luminal.runtime.device import POISON, Device, DeviceBuffer
from luminal.runtime.device_array import DeviceArray
from luminal.runtime.device_exchanges import Exchanges
from luminal.runtime.device_launches import DeviceLaunches, calls
from luminal.runtime.device_run import DeviceRun, Made, Walk
from luminal.runtime.device_table import WORKED, DeviceTable
from luminal.runtime.device_watch import Watch
from luminal.runtime.driver import DevicePointer, Driver, Mark, Recording
from luminal.runtime.flight import MOST, Moved, Queued
from luminal.runtime.on_ranks import Ranks, text_of
from luminal.runtime.placements import Placements
from luminal.runtime.prologue import Prologue
from luminal.runtime.ranks import Engines
from luminal.runtime.recordings import LAUNCHES, Listing, Listings, Slot
from luminal.runtime.report import Report, TaskTime, WorkMemory
from luminal.runtime.runner import Times
from luminal.runtime.sites import Sites
from luminal.runtime.together import joiner
from luminal.runtime.workspace import Layout, aligned


class Taken(Protocol):
    """What a run takes."""

    @property
    def seconds(self) -> float: ...


class DeviceRunner:
    """A Program on a device. One run at a time (the caller's lock). `dispatches`: how the device
    can be given launches; by the first where neither program nor user names another one. `predict`:
    what a run should take by each of them, at values of the dims.

    Raises CompileError for a kernel that the device cannot run, and for collectives where nothing
    moves values between devices of its kind.
    """

    def __init__(
        self,
        program: Program,
        device: Device,
        dispatches: Sequence[str] = ("graph", "list"),
        predict: Callable[[Program, Mapping[str, int]], Mapping[str, Taken]] = lambda *_: {},
    ) -> None:
        self.program = program
        self.device = device
        if config.get("LUMINAL_VERIFY"):
            verify.verify(program)
        texts = [tile_text.to_text(kernel) for kernel in program.kernels]
        self._code = [*map(device.compile, program.kernels, texts)]
        lanes = [code.lanes for code in self._code]
        wanted = config.get("LUMINAL_DISPATCH") or program.dispatch
        self.joiner = joiner(program, lanes, device.driver) if wanted == "one" else None
        can = wanted in dispatches and (wanted != "one" or self.joiner is not None)
        self.dispatch = wanted if wanted is not None and can else dispatches[0]
        self.ranks = Ranks(program.launches)
        self._refuse_collectives()
        self.communicators: dict[str, Communicator] = {}
        self.by_host: dict[str, ByHost] = {}
        self.quantities = Quantities(tuple(dim.name for dim in program.dims))
        self.launches = self._listed(program.launches, self.quantities)
        self.sites = Sites(program, program.launches, self.quantities)
        self.placements = Placements(program, self.quantities)
        self.sizes = [self.quantities.add(buffer.bytes) for buffer in program.buffers]
        self.prologue = Prologue(program, texts, device, self._derive)
        self.overwritten = _overwritten(program)
        self.workspace: DeviceBuffer | None = None
        self.told: Array | None = None  # the integers that lie in the workspace
        self.listings = Listings()
        self.slots: list[Slot] = []  # of which no run in flight has any
        self.tables: dict[Hashable, DeviceTable] = {}
        self.predicted = functools.cache(
            lambda dims: {way: taken.seconds for way, taken in predict(program, dict(dims)).items()}
        )
        self.poisons = config.get("LUMINAL_POISON")
        self.waits = config.get("LUMINAL_SYNC")

    @cached_property
    def most(self) -> Sequence[int]:
        """The values of all quantities at the upper ends of the dims."""
        return self.quantities.evaluate({dim.name: dim.hi or 0 for dim in self.program.dims})

    def bind(
        self, dims: Mapping[str, int], inputs: Sequence[str], outputs: Sequence[str]
    ) -> BoundDevice:
        """The launches with their numbers for these dims."""
        table = self.table(tuple(inputs), tuple(outputs))
        return BoundDevice(table, dict(dims), self.quantities.evaluate(dims))

    def table(
        self,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        addressed: frozenset[str] = frozenset(),
    ) -> DeviceTable:
        """The table of runs with arrays of these names, made at first."""
        key = inputs, outputs, addressed
        if key not in self.tables:
            self.tables[key] = DeviceTable(self, *key)
        return self.tables[key]

    def join(self, engines: Engines) -> None:
        """Takes the engines that ranks meet by. Raises InputError where they do not fit the
        program.
        """
        self.ranks.join(engines)
        self.communicators, self.by_host, self.listings = {}, {}, Listings()

    def stand_alone(self) -> None:
        """Lets runs copy operands where ranks would do something together: to be timed."""
        self.ranks.is_alone = True

    def meet(self) -> None:
        """Before the first run: makes sure that all ranks run this program, each on its device."""
        ranks = self.ranks
        if not ranks.launches or ranks.is_alone or self.communicators or self.by_host:
            return
        ranks.begin(partial(text_of, self.program))
        axes = dict.fromkeys(launch.attrs.axis for launch in ranks.launches)
        engines = {axis: ranks.engines[axis] for axis in axes}
        if any(carries(self.device.driver, engine) for engine in engines.values()):
            self.by_host = {axis: ByHost(engine, ranks) for axis, engine in engines.items()}
            self.dispatch, self.joiner = "list", None  # no recording has what the host does
        else:
            self.communicators = {axis: self.device.communicator(engines[axis]) for axis in axes}

    def watch(self, listing: Listing) -> Watch | None:
        """What waits for a run; None for one without other ranks."""
        if not self.communicators:
            return None  # what the host carries has been waited for once all is queued
        watch = Watch(listing.started, self.communicators, self.ranks.is_first)
        self.ranks.end()
        return watch

    def recorded(self, driver: Driver, listing: Listing) -> Recording | None:
        """The launches of a list as one call; None where the program has them one by one."""
        workspace = self.workspace
        if self.dispatch == "list" or workspace is None:
            return None
        sent, taken = (LAUNCHES.sent, workspace.place), (workspace.place, LAUNCHES.taken)
        return listing.recording(LAUNCHES, lambda calls: driver.record(sent, calls, taken))

    def _refuse_collectives(self) -> None:
        if self.ranks.launches and self.device.driver.has_library:
            try:
                self.device.driver.library()
            except CompileError as error:
                raise CompileError(f"{self.ranks.launches[0].title}: {error}") from None

    def peaks(self) -> None:
        """Nobody has measured what the device reaches."""

    def memory(self) -> WorkMemory:
        """The workspace and derived weights held now, on the device."""
        held = 0 if self.workspace is None else self.workspace.nbytes
        return WorkMemory(self.prologue.nbytes, held)

    def abandon_run(self) -> None:
        """A workspace is written anew by each run."""

    def slot(self, driver: Driver, layout: Layout) -> Slot:
        """Memory of the host for a run, until `slots` have it back."""
        slot = self.slots.pop() if self.slots else Slot()
        number = slot.number
        slot.reserve(driver, layout.sent, layout.taken)
        if slot.number != number:
            self.listings.forget(number)
        return slot

    def reserve(self, size: int) -> DeviceBuffer:
        """The workspace, of at least `size` bytes; it never shrinks."""
        if self.workspace is None or self.workspace.nbytes < size:
            self.workspace = self.told = None  # first the old one goes
            self.workspace = DeviceBuffer(self.device, (size,), uint8)
        return self.workspace

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
        start = aligned(placement.arena_bytes)
        row = start + aligned(listed.scratch_bytes(values))
        memory = self.device.empty((row + listed.integer_bytes,), uint8)
        places = {number: buffer.place for number, buffer in buffers.items()}
        for number, offset in zip(plan.buffers, placement.offsets, strict=True):
            places[number] = DevicePointer(memory.block, offset)
        table = self.entries(places)
        with self.device.entered() as driver:
            integers = DevicePointer(memory.block, row)
            driver.write(integers, listed.integers(values))
            scratch = DevicePointer(memory.block, start)
            for _, call in calls(bound, table, integers, scratch, Exchanges(driver, {})):
                driver.put(call)
            driver.wait()


class BoundDevice:
    """A Program for one binding of its dims. What a run needs is made by the first one."""

    def __init__(self, table: DeviceTable, dims: dict[str, int], values: Sequence[int]) -> None:
        self._table = table
        self._runner = table.runner
        self._dims = dims
        self._values = values
        self._made: Made | None = None
        self._tasks: tuple[TaskTime, ...] = ()

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Runs once, as `BoundRunner.run` says. If it fails while a State is overwritten where it
        lies, that State has no value until it is set.
        """
        self._queue(inputs, outputs, is_waited_for=True).check()

    def start(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """Queues a run, which has inputs and States as they are now. What it returns waits until
        the outputs are there, and raises what went wrong.
        """
        return partial(self._runner.device.finish, self._queue(inputs, outputs))

    def addressed(self, names: frozenset[str]) -> BoundDevice:
        """The program for `run_at`, with arrays of these names on the device."""
        table = self._runner.table(self._table.inputs, self._table.outputs, names)
        return BoundDevice(table, self._dims, self._values)

    def run_at(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Queues a run with the addresses of arrays on the device, and arrays of the host, which
        have their outputs when this returns.
        """
        waits, at = self._table.waits, self._where(inputs, outputs)
        queued = self._queue(inputs, outputs, is_waited_for=waits, at=at)
        if waits:
            queued.check()

    def seconds(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> float:
        """The device's seconds, from a run's first launch to the end of its last, which are given
        to it as the program has it.
        """
        marks: list[Mark] = []

        def walk(driver: Driver, listing: Listing) -> None:
            recording = self._runner.recorded(driver, listing)  # no part of the time
            marks.append(driver.mark())
            if recording is not None:
                recording.run()
            else:
                for call in listing.queued:
                    driver.put(call)
            marks.append(driver.mark())

        total = 0.0
        for _ in range(runs):
            self._queue(inputs, outputs, walk, is_waited_for=True).check()
            with self._runner.device.entered() as driver:
                total += driver.seconds(*marks[-2:])
        return total

    def profile(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int = 1) -> Times:
        """Runs, with a mark after every launch: the device's seconds. Launches that are one kernel
        run once more, as that: their tasks are in the reports from then on.
        """
        times = np.zeros((runs, len(self._runner.sites)))
        for row in times:
            for site, seconds in self._marked(inputs, outputs):
                row[site] += seconds
        if self._runner.dispatch == "one":
            self._tasks = self._traced(inputs, outputs)
        return times

    def clocked(self, inputs: Sequence[Any], outputs: Sequence[Any], at: bool = False) -> Clocked:
        """A run with a mark after every launch, or with the times of the groups of one kernel. The
        device's clock is not the host's: its last moment is taken for that in which the run was
        known to be over.
        """
        where = self._where(inputs, outputs) if at else ()
        called = time.perf_counter_ns()
        if self._runner.dispatch == "one":
            tick = self._runner.device.driver.tick
            bars = device_clocks.of_groups(self._stamped(inputs, outputs, where), tick)
        else:
            bars = device_clocks.of_marks(self._marked(inputs, outputs, where))
        return device_clocks.aligned(bars, called, time.perf_counter_ns())

    def _marked(
        self, inputs: Sequence[Any], outputs: Sequence[Any], at: Sequence[tuple[int, int]] = ()
    ) -> list[tuple[int, float]]:
        """A run with a mark after every launch: the launches' sites and the device's seconds."""
        marks: list[tuple[int, Mark]] = []

        def walk(driver: Driver, listing: Listing) -> None:
            marks.append((-1, driver.mark()))
            for site, call in listing.calls:
                driver.put(call)
                marks.append((site, driver.mark()))

        self._queue(inputs, outputs, walk, is_waited_for=True, at=at).check()
        with self._runner.device.entered() as driver:
            return [
                (site, driver.seconds(first, last))
                for (_, first), (site, last) in itertools.pairwise(marks)
            ]

    def _where(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Sequence[tuple[int, int]]:
        """The buffers of a run by address, and where they lie."""
        table = self._table
        read = [(number, inputs[k]) for number, k in table.read_at]
        return [*read, *((number, outputs[k]) for number, k in table.written_at)]

    def report(self) -> Report:
        """The launches of one run."""
        runner = self._runner
        rows, prologue = runner.sites.report(self._values), runner.prologue.report()
        return Report(
            self._dims, rows, prologue, dispatch=runner.dispatch, tasks=self._tasks,
            predicted=runner.predicted(tuple(self._dims.items())),
        )  # fmt: skip

    def _traced(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> tuple[TaskTime, ...]:
        """Runs with the launches joined as they are, and what each group says of its tasks."""
        rows = self._runner.sites.report(self._values)
        stamped = self._stamped(inputs, outputs)
        return task_trace.tasks(stamped, rows, self._runner.device.driver.tick)

    def _stamped(
        self, inputs: Sequence[Any], outputs: Sequence[Any], at: Sequence[tuple[int, int]] = ()
    ) -> list[Stamped]:
        """A run with the launches joined as they are, and what each group wrote of its tasks."""
        stamped: list[Stamped] = []

        def walk(driver: Driver, listing: Listing) -> None:
            assert listing.joined is not None
            stamped.extend(listing.joined.put_timed(driver))

        self._queue(inputs, outputs, walk, is_waited_for=True, at=at).check()
        return stamped

    def _workspace(self, size: int) -> DeviceBuffer:
        """The runner's workspace; a MemoryError says what of it is largest."""
        try:
            return self._runner.reserve(size)
        except MemoryError as error:
            placements = self._runner.placements
            words = placements.whose(placements.at(self._values))
            raise MemoryError(f"{error}; {words}") from None

    def _queue(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        walk: Walk | None = None,
        is_waited_for: bool = False,
        at: Sequence[tuple[int, int]] = (),
    ) -> Queued:
        """Queues a run, its launches by `walk` if there is one, and waits for it if so asked. `at`
        are buffers with the addresses where they lie.
        """
        # All that can fail for want of memory comes before the first launch is queued, so that a
        # run that raises leaves States as they were.
        runner, table, device = self._runner, self._table, self._runner.device
        runner.meet()
        prepared = self._made
        if prepared is None:
            prepared = self._made = self._make()
        stamp = runner.prologue.refresh()
        states = self._buffers()
        overwritten = [states[k] for k in table.overwritten]
        following = [spare_on(state, device) for _, state in table.following]
        turning = [spare_on(state, device) for state in runner.program.swaps]
        workspace = self._workspace(prepared.size)
        here = [(k, array) for k, array in enumerate(inputs) if type(array) is DeviceArray]
        stay = bool(outputs) and type(outputs[0]) is DeviceArray
        key = (
            prepared.layout.serial, prepared.variant, workspace.serial, stamp,
            *[buffer.serial for buffer in states], *[buffer.serial for buffer in following],
            stay, *[(k, array.key) for k, array in here], *at,
        )  # fmt: skip
        listing = runner.listings.get(
            key, lambda: self._calls(prepared, workspace, states, following, here, at)
        )
        watch = runner.watch(listing)
        run = DeviceRun(
            runner, prepared, workspace, listing, inputs, outputs, stay, watch
        )  # fmt: skip
        with device.entered() as driver:
            if len(device.flight) >= MOST:
                device.flight.settle(driver, most=MOST - 1)
            try:
                if runner.poisons:
                    for buffer in (workspace, *turning):
                        driver.fill(buffer.place, buffer.nbytes, POISON)
                run.queue(driver, walk)
                alone = is_waited_for and not device.flight and watch is None
                mark = None if alone else driver.mark()
            except BaseException:
                # Part of it may be queued: half a value, which nobody may read.
                for buffer in overwritten:
                    buffer.is_whole = False
                device.flight.settle(driver)
                raise
            moved = self._exchange(turning)
            queued = Queued(run.land, mark, overwritten, moved, outputs if stay else (), watch)
            device.flight.add(queued)
            if is_waited_for:
                device.flight.settle(driver, queued)
        return queued

    def _buffers(self) -> list[Any]:
        """The buffers of the States on the device. Raises for one that holds half a value."""
        # One that a run found here is here, which is most of them: a call each would add up.
        device = self._runner.device
        buffers: list[Any] = [
            state.buffer if type(state) is State and state.buffer.space is device
            else state.on(device)
            for _, state in self._table.states
        ]  # fmt: skip
        for buffer in buffers:
            if not buffer.is_whole:
                buffer.check()
        return buffers

    def _exchange(self, turning: Sequence[DeviceBuffer]) -> list[Moved]:
        """Gives each State that a run writes beside its value the buffer with the new one."""
        moved = []
        for state, buffer in zip(self._runner.program.swaps, turning, strict=True):
            moved.append(Moved(state, state.buffer, buffer))
            buffer.is_whole = True
            exchange(state, self._runner.device)
        return moved

    def _calls(
        self,
        prepared: Made,
        workspace: DeviceBuffer,
        states: Sequence[DeviceBuffer],
        following: Sequence[DeviceBuffer],
        here: Sequence[tuple[int, DeviceArray]],
        at: Sequence[tuple[int, int]],
    ) -> Listing:
        runner, table, block = self._runner, self._table, workspace.block
        places = {n: DevicePointer(block, offset) for n, offset in prepared.layout.offsets.items()}
        for _, number in table.table.fixed:
            places[number] = runner.prologue.buffers[number].place
        for pairs, buffers in ((table.states, states), (table.following, following)):
            for (number, _), buffer in zip(pairs, buffers, strict=True):
                places[number] = buffer.place
        numbers = {k: number for number, k in table.plan.inputs}
        places |= {numbers[k]: array.place for k, array in here if k in numbers}
        for number, address in at:
            size = max(1, self._values[runner.sizes[number]])
            places[number] = DevicePointer(runner.device.driver.block_at(address, size))
        scratch = DevicePointer(block, prepared.layout.scratch)
        bound = table.bound(prepared.variant, self._values)
        exchanges = Exchanges(runner.device.driver, runner.by_host or runner.communicators)
        entries = runner.entries(places)
        listed = [*calls(bound, entries, workspace.place, scratch, exchanges)]
        if runner.communicators:
            runner.device.driver.expect(len(exchanges.started))
        joined = None
        if runner.joiner is not None:
            sizes = {number: self._values[runner.sizes[number]] for number in places}
            size = runner.launches.scratch_bytes(self._values)
            joined = runner.joiner.joined(runner.device, listed, places, sizes, size)
        return Listing(listed, exchanges.started, joined)

    def _make(self) -> Made:
        launches, values = self._runner.launches, self._values
        layout = self._table.layout(values)
        scratch = launches.scratch_bytes(self._runner.most)
        size = layout.scratch + max(launches.scratch_bytes(values), min(scratch, WORKED))
        return Made(layout, launches.variant(values), launches.integers(values), size)


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

"""Executable: a compiled graph that takes arrays, checks them, runs and returns arrays.

Everything that can fail is checked before the backend's runner starts, so that a call that raises
leaves inputs and States as they were.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn, TypeVar, cast

import numpy as np

from luminal.base import forks
from luminal.base.errors import CompileError, InputError
from luminal.base.markup import card
from luminal.frontend.graph import check_shape
from luminal.hlir.graph import Graph
from luminal.hlir.index_inputs import index_inputs
from luminal.hlir.ops import Value
from luminal.hlir.sharding import dims_at
from luminal.loaders.write_atomic import replacing
from luminal.memory.arrays import Buffer, HostBuffer
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.runtime import pauses
from luminal.runtime.addressed import Addressed
from luminal.runtime.arrays import Array, Given, merged
from luminal.runtime.binding import InputSpec, Interval, Signature
from luminal.runtime.device import Device
from luminal.runtime.device_array import DeviceArray
from luminal.runtime.dim_sources import Shapes
from luminal.runtime.interface import Exporting, Interface
from luminal.runtime.leaves import Leaves
from luminal.runtime.locks import Held, assignable
from luminal.runtime.outputs import Outputs
from luminal.runtime.ranks import ALONE, Engines, OnRanks, Ranked
from luminal.runtime.report import MemoryReport, Report, TaskTime
from luminal.runtime.results import Results
from luminal.runtime.roofline import Peaks
from luminal.runtime.run import Run, Starting
from luminal.runtime.runner import AddressedRunner
from luminal.runtime.variants import Binding, Bindings, Variant

if TYPE_CHECKING:  # a host without a device starts without kernels
    from luminal.runtime.device_runner import BoundDevice

_shape = attrgetter("shape")
ON_DEVICE = "device"
"""What `out` says for outputs that stay where they were computed."""
T = TypeVar("T")


class _Profile(NamedTuple):
    """Medians over the runs of a profile, what the machine reaches, and the last run's tasks."""

    sites: list[float]
    run: float
    peaks: Peaks | None
    tasks: tuple[TaskTime, ...]


_Ready = tuple[Sequence[Array | None], Shapes, list[Array], Binding, list[Array]]
"""A call whose checks are done, so that what is left cannot fail: what calls have given with this
one, all that a run takes, its binding, its outputs.
"""


# Whatever can fail is checked before a run, since a State that is overwritten where it lies cannot
# be put back. What takes time in a call is checked once and recognized afterwards.
class Executable:
    """A compiled graph: `exe({"x": array})` runs it; several threads may call, one runs at a time.

    `values` are the arrays set on the graph: they serve where no call has given an input.
    `declared` are all its inputs and weights: those that no output needs are taken and left aside,
    but for dims that only their shapes give.
    `title` says in its repr where it comes from, `for_device` makes it for another device, `stage`
    gives the text of a stage of its compile. `mesh` is what is said of a program that several ranks
    run. `view` makes the viewer's document of this executable, and `show` shows one.
    """

    def __init__(
        self,
        graph: Graph,
        variants: Sequence[Variant],
        values: Mapping[str, Array] | None = None,
        intervals: Mapping[str, Interval] | None = None,
        declared: Mapping[str, Value] | None = None,
        title: str = "",
        for_device: Callable[[str], Executable] | None = None,
        stage: Callable[[str], str] | None = None,
        mesh: OnRanks = ALONE,
        view: Callable[[Executable], Mapping[str, Any]] | None = None,
        show: Callable[..., None] | None = None,
    ) -> None:
        self.graph = graph
        self._title = title
        self._for_device = for_device
        self._stage = stage
        self._view, self._show = view, show
        self._mesh = mesh
        self._variants = tuple(variants)
        self._values = {} if values is None else values
        places = dims_at({axis: engine.rank for axis, engine in mesh.engines.items()})
        self._signature = Signature(graph, intervals, places, mesh.parts)
        self._inputs = self._signature.inputs
        self._device = _device_of(self._variants)
        self.join(mesh.engines)
        self._leaves = Leaves(graph, self._signature, dict(declared or {}), self._device)
        self._weights, self._sources = self._leaves.weights, self._leaves.sources
        self._states = assignable(graph)
        self._trained = [held for held in self._states if isinstance(held, Parameter)]
        for parameter in self._trained:
            parameter.assigned()
        self._newest: int | None = None  # version of any Parameter, when locks were last looked for
        self._held: Held | None = None
        self._outputs = Outputs(graph, self._signature.quantities)
        self._input_names = tuple(spec.name for spec in self._inputs)
        self._checks = tuple((self._leaves.slots[use.name], use) for use in index_inputs(graph))
        self._bindings = Bindings(
            self._variants, self._signature, self._sources, self._outputs, self._checks, title
        )
        self._lock = forks.rlock()
        self._given: Sequence[Array | None] = [None] * len(self._inputs)  # by calls, for good
        self._shapes = self._sources.none  # of what calls gave only for its dims
        self._used: list[Array] = []  # what the last run took
        self._profiles: dict[frozenset[tuple[str, int]], _Profile] = {}  # by dims
        self._owns_none = not self._weights and not self._states  # memory that `out` may not share
        self._has_weights = False  # once all of them have a value, they keep one
        pauses.register(self, self._lock, Executable._abandon_run)

    def join(self, engines: Engines) -> None:
        """Takes the engines by which collectives go. Raises InputError where they do not fit."""
        self._common = replace(self._mesh, engines=engines).compared(self._signature.needed)
        for variant in self._variants if engines else ():
            if isinstance(variant.runner, Ranked):
                variant.runner.join(engines)

    def explain_sharding(self) -> str:
        """How inputs and outputs are cut over the mesh, and every collective of a run: its value,
        what asks for it, and the bytes that a rank sends.
        """
        return self._mesh.explain()

    @property
    def interface(self) -> str:
        """What a call takes and gives: `x: f32[s, 4] -> y: f32[s, 4]`."""
        shapes = [", ".join(map(str, spec.shape)) for spec in self._inputs]
        takes = ", ".join(
            f"{spec.name}: {spec.dtype.short}[{shape}]"
            for spec, shape in zip(self._inputs, shapes, strict=True)
        )
        gives = ", ".join(f"{sink.name}: {sink.value.type}" for sink in self._outputs.sinks)
        return f"{takes or 'nothing'} -> {gives or 'nothing'}"

    def __repr__(self) -> str:
        return f"Executable({'; '.join((self.interface, *filter(None, self._condition())))})"

    def _repr_html_(self) -> str:
        takes, gives = self.interface.split(" -> ")
        rows = [("takes", takes), ("gives", gives)]
        rows += [("", said) for said in self._condition() if said]
        return card("Executable", rows)

    def _condition(self) -> Iterator[str]:
        """The parts of the repr: where this executable comes from, and what it has and lacks
        now.
        """
        yield self._title
        if self._weights:
            open_ = sum(not p.has_value for p in self._weights.values())
            yield f"weights: {len(self._weights)}" + (f", {open_} without a value" if open_ else "")
        if self._trained:
            yield f"assigns {len(self._trained)} of them"
        if len(self._states) > len(self._trained):
            yield f"states: {len(self._states) - len(self._trained)}"
        last = self._bindings.last
        dims = ", ".join(f"{name} = {n}" for name, n in last.dims.items()) if last else ""
        yield ("ran last" + (f" at {dims}" if dims else "")) if last else "has not run"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Executable: native code cannot be pickled or copied; compile the graph again, in a "
            "spawned process too"
        )

    # --- running

    def __call__(
        self,
        inputs: Given | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **named: Any,
    ) -> Results:
        """Runs once. `inputs`: arrays by name or Tensor, kept for later runs; Weights stay set.

        `dims`: the dims that no input's shape gives. `out`: arrays to write into, by output name or
        Tensor, or the only output's array; "device" leaves them on the device. Raises InputError,
        ShapeError, DTypeError, DimError.
        """
        if named or inputs.__class__ is not dict:
            inputs = named if inputs is None else self.accepting(merged, "inputs", inputs, named)
        with self._lock:
            last = self._bindings.last
            if (
                out is None
                and dims is None
                and last is not None
                and not last.unchecked
                and self._held is None
                and self._common is None
                and self._newest == Parameter.newest
            ):  # nothing but arrays is to be looked at, which native code does, and runs
                outputs = self._outputs.take(last.outputs)
                if (used := last.recognizer.again(inputs, outputs)) is not False:
                    self._given = self._used = used
                    return Results(outputs, self._outputs.places)
                del outputs  # what is checked takes the same memory
            return Results(self._checked(inputs, dims, out), self._outputs.places)

    execute_with_capture = __call__
    """A call by the name that Luminal had for it: runs that come again are captured anyway."""

    def start(
        self,
        inputs: Given | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **named: Any,
    ) -> Run:
        """Starts a run, as a call does; `Run.result()` waits for it. Inputs may change at once.

        A device computes meanwhile, and takes what is started next after it, with the States that
        it leaves. Elsewhere the run is over when this returns. Raises what a call's checks do.
        """
        with self._lock:
            ready = _, _, used, binding, outputs = self._ready(
                self.accepting(merged, "start", inputs, named), dims, out
            )
            wait = None
            if self._device is None:
                self._run(binding.bound.run, used, outputs)
            else:
                wait = self._run(cast(Starting, binding.bound).start, used, outputs)
            self._keep(ready)
            return Run(Results(outputs, self._outputs.places), wait)

    def _checked(self, inputs: Given, dims: Mapping[str, int] | None, out: Any) -> list[Array]:
        """The outputs of a run, after all checks that this call needs."""
        again = self.accepting(self._recognized, inputs, out) if dims is None else None
        if again is not None:
            used, outputs, binding = again
            self._compare(binding.dims)
            self._run(binding.bound.run, used, outputs)
            self._given = self._used = used
        else:
            ready = _, _, used, binding, outputs = self._ready(inputs, dims, out)
            self._run(binding.bound.run, used, outputs)
            self._keep(ready)
        return outputs

    def _recognized(
        self, inputs: Given, out: Any
    ) -> tuple[list[Array], list[Array], Binding] | None:
        """What a run takes and gives, and the last run's binding, where this call is as that was:
        all inputs and nothing else, as arrays that need no conversion. Its checks are done then.
        """
        last = self._bindings.last
        if last is None or (used := last.recognizer.inputs(inputs)) is False:
            return None
        for slot, use in last.unchecked:
            use.check(used[slot], last.dims)
        if out is None:
            return used, self._outputs.take(last.outputs), last
        if out.__class__ is np.ndarray:
            out = dict.fromkeys(self._outputs.names, out)
        if not self._owns_none or out.__class__ is not dict:
            return None
        outputs = last.recognizer.outputs(out, used)
        return None if outputs is False else (used, outputs, last)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs that a run reads, in order."""
        return self._input_names

    @property
    def on_ranks(self) -> OnRanks:
        """How several ranks run it."""
        return self._mesh

    @property
    def last_dims(self) -> Mapping[str, int]:
        """The dims of the last run."""
        return {} if self._bindings.last is None else self._bindings.last.dims

    @property
    def device(self) -> Device | None:
        """Where all of it runs, if that is not the host."""
        return self._device

    def at(
        self,
        shapes: Sequence[tuple[int, ...]],
        dims: Mapping[str, int] | None = None,
        host: Collection[str] = (),
    ) -> Addressed:
        """The program for inputs of these shapes, one for each of `input_names`, and dims that they
        do not give: to be run on memory that others own. Raises as a call does.

        `host`: the inputs and outputs of a device's program that are arrays of the host.
        """
        with self._lock:
            binding = self._bindings.bind(tuple(shapes), self._shapes, dims)
        bound = binding.bound
        if not isinstance(bound, AddressedRunner):
            raise CompileError("at: this backend runs on arrays only; compile with backend='cpu'")
        if self._device is not None:
            if self._device.driver.dlpack_device is None:
                raise CompileError(f"at: {self._device.name} has memory without addresses")
            names = {*self._input_names, *self._outputs.names} - {*host}
            bound = cast("BoundDevice", bound).addressed(frozenset(names))
        return Addressed(self, binding.dims, binding.outputs, bound)

    def run_at(
        self,
        bound: AddressedRunner,
        dims: Mapping[str, int],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
    ) -> None:
        """Runs with arrays at these addresses; see `Addressed.run`."""
        with self._lock:
            self._compare(dims)
            self._run(bound.run_at, inputs, outputs)

    def accepting(self, check: Callable[..., T], *arguments: Any) -> T:
        """What `check` gives, a part of what a call may be refused by. Where it raises, whatever it
        is, the other ranks of a mesh hear that this one has no part in the run.
        """
        try:
            return check(*arguments)
        except Exception:
            if self._common is not None:
                self._common.refuse()
            raise

    def _compare(self, dims: Mapping[str, int]) -> None:
        """Raises DimError where other ranks are about to run with other dims than this one, and
        InputError where one of them refuses its inputs.
        """
        if self._common is not None:
            self._common.check(dims)

    def _run(self, run: Callable[..., T], *arrays: Any) -> T:
        """Runs with the locks held of what this program may assign, and of what others may."""
        # Locks in one order for all programs, so that two runs which share a State cannot wait for
        # each other; none at all where nothing is assigned, which is most inference.
        if self._newest != Parameter.newest:
            self._find_locks()
        if self._held is None:
            return run(*arrays)
        with self._held:
            done = run(*arrays)
            for parameter in self._trained:
                parameter.changed()
            return done

    def _find_locks(self) -> None:
        """What runs hold: States, and Parameters that some program assigns, in order."""
        self._newest = Parameter.newest
        shared = {*self._states, *(p for p in self._weights.values() if p.lock is not None)}
        ordered = sorted(shared, key=lambda held: held.id)
        locks = [held.lock for held in ordered if held.lock is not None]
        self._held = Held(locks) if locks else None

    def _keep(self, ready: _Ready) -> None:
        self._given, self._shapes, self._used, self._bindings.last, _ = ready

    def _ready(self, inputs: Given | None, dims: Mapping[str, int] | None, out: Any) -> _Ready:
        """What a run needs, after all checks of a call and after setting the weights that it
        gives.
        """
        # Everything that can fail is asked first and weights are set last: a call that raises has
        # changed nothing, neither a weight nor the arrays that later calls go on with.
        ready, weights = self.accepting(self._accepted, inputs, dims, out)
        self._compare(ready[3].dims)
        for parameter, array in weights:
            parameter.set(array)
        return ready

    def _accepted(
        self, inputs: Given | None, dims: Mapping[str, int] | None, out: Any
    ) -> tuple[_Ready, Sequence[tuple[Parameter, Any]]]:
        """What a run needs, and the weights that are to be set; raises what a call's checks do."""
        received = self._leaves.receive(self._given, self._shapes, inputs or {})
        arrays, slots, weights, shapes = received
        used: Any = arrays
        if len(slots) < len(arrays):
            used = self._leaves.completed(arrays, self._values)
        beside = self._sources.completed(shapes, self._values) if shapes else shapes
        binding = self._bindings.bind(tuple(map(_shape, used)), beside, dims)
        if self._checks:
            self._check_indices(used, slots, binding)
        if not self._has_weights:
            self._leaves.check_weights(weights)
            self._has_weights = not weights
        if out is None:
            outputs = self._outputs.take(binding.outputs)
        elif out.__class__ is str:
            outputs = self._left_there(out, binding)
        else:
            outputs = self._outputs.take_into(binding.outputs, out, self._owned(used))
        return (arrays, shapes, used, binding, outputs), weights

    def _left_there(self, out: str, binding: Binding) -> list[Any]:
        """Arrays on the device for a run's outputs: NumPy's, where that is the host."""
        if out != ON_DEVICE:
            raise InputError(f"out: {out!r}; takes arrays by output name, or {ON_DEVICE!r}")
        device = self._device
        if device is None:
            return self._outputs.take(binding.outputs)
        return [DeviceArray.empty(device, plan.shape, plan.dtype) for plan in binding.outputs]

    def _check_indices(self, used: list[Array], slots: set[int], binding: Binding) -> None:
        """Inputs given again, and all where an extent may have changed."""
        same = binding is self._bindings.last and bool(self._used)
        for slot, use in self._checks:
            if slot in slots or not (same and used[slot] is self._used[slot]):
                use.check(np.asarray(used[slot]), binding.dims)

    def _owned(self, used: list[Array]) -> list[Array]:
        """The arrays that no output may share memory with."""
        buffers = [parameter.stored for parameter in self._weights.values()]
        buffers += [state.buffer for state in self._states if isinstance(state, State)]
        buffers += [state.spare for state in self._states]
        arrays = (array for array in used if isinstance(array, np.ndarray))
        return [*arrays, *(buffer.array for buffer in buffers if isinstance(buffer, HostBuffer))]

    def release(self) -> None:
        """Lets go of the inputs that calls gave: the next call gives them anew."""
        with self._lock:
            self._given = [None] * len(self._inputs)
            self._used = []

    def to(self, device: Any) -> Executable:
        """An executable of the same graph and options for another device ("cpu", "opencl:0").

        Weights and States are shared, and what is set on the graph; inputs set on this executable
        are not. Raises InputError for a device that cannot be used.
        """
        if self._for_device is None:
            raise CompileError("to: this executable was not made by lm.compile; compile its graph")
        return self._for_device(str(device))

    def text(self, stage: str) -> str:
        """A stage of the compile as text, as `luminal compile --dump` prints it: "program", "tile",
        "c".

        Raises CompileError for a stage that the backend does not have, and names those it has.
        """
        if self._stage is None:
            raise CompileError(
                "text: this executable was not made by lm.compile; compile its graph"
            )
        return self._stage(stage)

    def document(self) -> dict[str, Any]:
        """All that is known of the program, as the viewer shows it: its values with the user's
        lines, its stages, kernels, launches, memory and search (docs/inspecting.md lists the keys).
        Times are in it once `profile` was called. Raises CompileError for backends without stages.
        """
        if self._view is None:
            raise CompileError("viz: this executable was not made by lm.compile; compile its graph")
        return {**self._view(self)}

    def viz(self, path: str | Path | None = None, *, port: int = 0, browser: bool = True) -> None:
        """Shows what the compiler did: serves a page to this machine alone until Ctrl-C and opens
        it in a browser, or writes it to `path`, one file that needs no other. Times are in it once
        `profile` was called. Raises what `document` does, InputError for a port or path that cannot
        be had.
        """
        document = self.document()
        assert self._show is not None
        self._show(document, path, port, browser)

    def export(
        self,
        path: str | Path,
        dims: Mapping[str, int | Interval] | None = None,
        weights: str | Path | None = None,
    ) -> Path:
        """Writes the program as one file that runs without compilers, from Python or C alone:
        native code for this CPU (or LUMINAL_TARGET's), and weights and States as they are now.

        `dims`: the greatest value, or the least and the greatest, of dims: memory is laid out for
        them, and runs beyond them are refused. `weights`: a file of their own for weights, which is
        found from the program's folder. `lm.load_exported(path)` runs it, and
        `include/luminal.h` of the package says how C does. An existing file is replaced once the
        new one is whole. Raises CompileError for programs of other backends, of several ranks, with
        Python in them, or with dims without an end; InputError for a path that cannot be written.
        """
        runner = self._variants[0].runner
        if not isinstance(runner, Exporting) or self._mesh.engines:
            where = "several ranks" if self._mesh.engines else "this backend"
            raise CompileError(
                f"export: writes programs of one process on the CPU, and this one is for {where}; "
                "compile the graph with backend='cpu'"
            )
        with self._lock:
            self._leaves.check_weights([])
            interface = self._interface(dict(dims or {}))
            variants = [(variant.intervals, variant.runner) for variant in self._variants]
            with ExitStack() as files:
                apart = None
                if weights is not None:
                    apart = cast(BinaryIO, files.enter_context(replacing(weights)))
                    place = os.path.relpath(Path(weights).resolve(), Path(path).resolve().parent)
                    interface = replace(interface, weights=place)
                file = cast(BinaryIO, files.enter_context(replacing(path)))
                runner.export(file, interface, variants, apart)
        return Path(path)

    def _interface(self, ends: dict[str, Any]) -> Interface:
        """What a run takes and gives, with dims within `ends`."""
        limits = self._signature.limits(ends)
        outputs = [InputSpec(s.name, s.value.shape, s.value.dtype) for s in self._outputs.sinks]
        required = {r: f"requirement {r} does not hold" for r in self._signature.requirements}
        words = "; ".join(filter(None, (self.interface, self._title)))
        return Interface(words, limits, self._inputs, (*outputs,), required, self._checks)

    # --- values for good

    def set(self, values: Given | None = None, **named: Any) -> None:
        """Sets weights (and inputs) for good, by name, Tensor or Parameter: all of them or none."""
        with self._lock:
            wanted = merged("set", values, named)
            arrays, slots, weights, shapes = self._leaves.receive(self._given, self._shapes, wanted)
            for slot in slots:
                array = arrays[slot]
                assert array is not None
                check_shape(self._inputs[slot].name, array.shape, self._inputs[slot].shape)
            for parameter, array in weights:
                parameter.set(array)
            self._given, self._shapes = arrays, shapes

    def load_state_dict(self, weights: Mapping[str, Any], strict: bool = True) -> None:
        """Sets every weight of the graph by name; not strict: others may be missing or unexpected.

        Raises InputError that lists missing and unexpected names; then nothing is set.
        """
        self._leaves.check_names(weights, strict)
        self.set({name: value for name, value in weights.items() if name in self._weights})

    # --- forks

    def _abandon_run(self) -> None:
        """Forgets, in a child, a run that another thread of the parent goes on with.

        A State may hold some of its elements from before the run and some from after it.
        """
        self._bindings.clear()
        for variant in self._variants:
            variant.runner.abandon_run()
        for state in self._states:
            state.spare = None  # it may be the buffer, if the two were just being exchanged

    # --- reports

    def report(self, dims: Mapping[str, int] | None = None) -> Report:
        """The launches of one run at `dims`: the last run's, or before any the upper ends.

        With times once `profile` was called at these dims.
        """
        with self._lock:
            if dims is None and self._bindings.last is not None:
                at = self._bindings.last.dims
            else:
                at = self._signature.upper_ends(dims or {})
            report = replace(
                self._bindings.bound(at).report(), compiled=self._bindings.variant(at).compiled
            )
            profile = self._profiles.get(frozenset(at.items()))
            return report if profile is None else report.timed(*profile)

    def profile(
        self,
        inputs: Given | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        runs: int = 20,
        **named: Any,
    ) -> Report:
        """Runs `runs` times as a call does and as often with a clock, in turns: the report with
        medians, and the machine's peaks as they are measured beside.

        States are left as they were. Raises as a call does.
        """
        if runs < 1:
            raise InputError(f"profile: runs = {runs}; takes an int >= 1")
        self._find_locks()
        with self._lock, self._held or nullcontext():
            ready = self._ready(self.accepting(merged, "profile", inputs, named), dims, None)
            *_, used, binding, outputs = ready
            bound = binding.bound
            # Runs move States on. They are put back, so that a profile in the middle of a text or
            # of training changes neither.
            kept = [(state, state.buffer.copy()) for state in self._states]
            taken, clocked = [], []
            try:
                for _ in range(runs):  # in turns: a slow spell of the machine meets both
                    start = time.perf_counter()
                    bound.run(used, outputs)
                    taken.append(time.perf_counter() - start)
                    clocked.append(bound.profile(used, outputs)[0])
                sites = np.median(clocked, 0).tolist()
            finally:
                for state, values in kept:
                    state.buffer.write(values)
                for parameter in self._trained:
                    parameter.changed()
            self._keep(ready)
            at = binding.dims
            peaks, tasks = self._bindings.variant(at).runner.peaks(), bound.report().tasks
            self._profiles[frozenset(at.items())] = _Profile(sites, median(taken), peaks, tasks)
            return self.report()

    def device_seconds(
        self,
        inputs: Given | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        runs: int = 1,
        **named: Any,
    ) -> float:
        """The seconds of a run by the clock of what computes it, the mean of `runs`.

        On a device that is from the first launch to the end of the last, without copies of inputs
        and outputs.

        States change as `runs` calls would change them. Raises as a call does.
        """
        if runs < 1:
            raise InputError(f"device_seconds: runs = {runs}; takes an int >= 1")
        self._find_locks()
        with self._lock, self._held or nullcontext():
            ready = self._ready(self.accepting(merged, "device_seconds", inputs, named), dims, None)
            *_, used, binding, outputs = ready
            try:
                return binding.bound.seconds(used, outputs, runs) / runs
            finally:
                for parameter in self._trained:
                    parameter.changed()
                self._keep(ready)

    def memory_report(self) -> MemoryReport:
        """The bytes that the executable holds now."""
        with self._lock:
            held = [variant.runner.memory() for variant in self._variants]
            states = [s.buffer for s in self._states if isinstance(s, State)]
            states += [s.spare for s in self._states if s.spare is not None]
            return MemoryReport(
                input_bytes=_bytes_of(self._used or self._given),
                weight_bytes=_bytes_of(_once(p.stored for p in self._weights.values())),
                derived_bytes=sum(memory.derived_bytes for memory in held),
                state_bytes=_bytes_of(states),
                arena_bytes=sum(memory.arena_bytes for memory in held),
                scratch_bytes=sum(memory.scratch_bytes for memory in held),
                output_pool_bytes=self._outputs.free_bytes,
            )


def _device_of(variants: Sequence[Variant]) -> Device | None:
    """Where all of them run, if that is not the host."""
    devices = {getattr(variant.runner, "device", None) for variant in variants}
    device = devices.pop() if len(devices) == 1 else None
    return device if isinstance(device, Device) else None


def _once(held: Iterable[Buffer | None]) -> list[Buffer]:
    """The buffers, each memory once: what packs a weight is read in several dtypes from one."""
    by_place: dict[Any, Buffer] = {}
    for buffer in held:
        if buffer is not None:
            place = buffer.address if isinstance(buffer, HostBuffer) else id(buffer)
            by_place.setdefault((place, buffer.nbytes), buffer)
    return list(by_place.values())


def _bytes_of(held: Iterable[Array | Buffer | None]) -> int:
    return sum(holder.nbytes for holder in held if holder is not None)

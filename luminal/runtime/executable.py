"""Executable: a compiled graph that takes arrays, checks them, runs and returns arrays.

Everything that can fail is checked before the backend's runner starts, so that a call that raises
leaves inputs and States as they were.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, NamedTuple, NoReturn
from weakref import WeakValueDictionary

import numpy as np

from luminal import forks
from luminal.errors import CompileError, DimError, InputError
from luminal.frontend.graph import check_shape
from luminal.hlir.graph import Assign, Graph
from luminal.hlir.index_inputs import index_inputs
from luminal.hlir.memory import Buffer, HostBuffer
from luminal.hlir.ops import Value
from luminal.hlir.state import Assignable, Parameter, State
from luminal.hlir.substitute import blocks
from luminal.runtime.addressed import Addressed
from luminal.runtime.arrays import Array, Given, accept, fitting, merged
from luminal.runtime.binding import Bound, Dims, Interval, Signature, missing_input
from luminal.runtime.dim_sources import DimSources, Shapes
from luminal.runtime.outputs import OutputPlan, Outputs
from luminal.runtime.report import CompileSummary, MemoryReport, Report
from luminal.runtime.results import Results
from luminal.runtime.roofline import Peaks
from luminal.runtime.runner import AddressedRunner, BoundRunner, Runner

MAX_BINDINGS = 64  # shapes whose bindings are kept, the least recently used go first

FORK_SECONDS = 1.0
"""How long a fork waits for runs in other threads: what they change is whole in the child then."""

_Key = tuple[tuple[tuple[int, ...], ...], Shapes, tuple[tuple[Any, int], ...]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A runner and the dims it was compiled for; the empty mapping takes all."""

    intervals: Mapping[str, Interval]
    runner: Runner
    compiled: CompileSummary = field(default_factory=CompileSummary)

    def takes(self, dims: Dims) -> bool:
        """Whether the dims lie in the intervals."""
        return all(
            name not in dims or lo <= dims[name] <= hi for name, (lo, hi) in self.intervals.items()
        )


class _Binding(NamedTuple):
    """All that a run needs beside arrays, for one set of input shapes and dims."""

    key: _Key
    dims: Dims
    outputs: tuple[OutputPlan, ...]
    bound: BoundRunner


class _Profile(NamedTuple):
    """Medians over the runs of a profile, and what the machine reaches."""

    sites: list[float]
    run: float
    peaks: Peaks | None


class _Ready(NamedTuple):
    """A call whose checks are done: what is left cannot fail."""

    arrays: list[Array | None]  # given by calls so far
    shapes: Shapes  # of what only gives dims
    used: list[Array]
    binding: _Binding
    outputs: list[Array]


class _Received(NamedTuple):
    """What one call gives: the arrays of all slots so far, the slots it gave, weights to set."""

    arrays: list[Array | None]
    slots: set[int]
    weights: list[tuple[Parameter, Array]]
    shapes: Shapes


class _Held:
    """Locks held inside a `with`, taken in order: an ExitStack costs ten times as much."""

    __slots__ = ("_locks",)

    def __init__(self, locks: Sequence[threading.RLock]) -> None:
        self._locks = locks

    def __bool__(self) -> bool:
        return bool(self._locks)

    def __enter__(self) -> None:
        taken = 0
        try:
            for lock in self._locks:
                lock.acquire()
                taken += 1
        except BaseException:  # an interrupt while it waits
            self._release(taken)
            raise

    def __exit__(self, *error: object) -> None:
        self._release(len(self._locks))

    def _release(self, count: int) -> None:
        for lock in self._locks[:count]:
            lock.release()


class Executable:
    """A compiled graph: `exe({"x": array})` runs it; several threads may call, one runs at a time.

    `values` are the arrays set on the graph: they serve where no call has given an input.
    `declared` are all its inputs and weights: those that no output needs are taken and left aside,
    but for dims that only their shapes give.
    `title` says in its repr where it comes from, `for_device` makes it for another device.
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
    ) -> None:
        self.graph = graph
        self._title = title
        self._for_device = for_device
        self._variants = tuple(variants)
        self._values = {} if values is None else values
        self._signature = Signature(graph, intervals)
        self._inputs = self._signature.inputs
        self._slots: dict[Any, int] = {}  # by name and by Value
        self._weights: dict[str, Parameter] = {}
        self._parameters: dict[Any, tuple[str, Parameter]] = {}  # by name, Value and Parameter
        self._read_leaves()
        named = dict(declared or {})
        self._declared: frozenset[Any] = frozenset((*named, *named.values()))
        self._sources = DimSources(self._signature, named)
        self._states = _states(graph)
        self._trained = [held for held in self._states if isinstance(held, Parameter)]
        for parameter in self._trained:
            parameter.assigned()
        self._newest: int | None = None  # version of any Parameter, when locks were last looked for
        self._held = _Held(())
        self._outputs = Outputs(graph, self._signature.quantities)
        self._input_names = tuple(spec.name for spec in self._inputs)
        self._checks = tuple((self._slots[use.name], use) for use in index_inputs(graph))
        self._lock = forks.rlock()
        self._arrays: list[Array | None] = [None] * len(self._inputs)  # given by calls, for good
        self._shapes = self._sources.none  # likewise
        self._used: list[Array] = []  # what the last run took
        self._binding: _Binding | None = None
        self._bindings: OrderedDict[_Key, _Binding] = OrderedDict()
        self._profiles: dict[frozenset[tuple[str, int]], _Profile] = {}  # by dims
        self._has_weights = False  # once all of them have a value, they keep one
        _live[id(self)] = self

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

    def _condition(self) -> Iterator[str]:
        """Where this comes from, and what it has and lacks now."""
        yield self._title
        if self._weights:
            open_ = sum(not p.has_value for p in self._weights.values())
            yield f"weights: {len(self._weights)}" + (f", {open_} without a value" if open_ else "")
        if self._trained:
            yield f"assigns {len(self._trained)} of them"
        if len(self._states) > len(self._trained):
            yield f"states: {len(self._states) - len(self._trained)}"
        last = self._binding
        dims = ", ".join(f"{name} = {n}" for name, n in last.dims.items()) if last else ""
        yield ("ran last" + (f" at {dims}" if dims else "")) if last else "has not run"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Executable: native code cannot be pickled or copied; compile the graph again, in a "
            "spawned process too"
        )

    def _read_leaves(self) -> None:
        leaves = self.graph.by_op()
        for slot, node in enumerate(leaves.get("Input", ())):  # as the signature lists them
            self._slots[node.attrs.name] = self._slots[node.value] = slot
        for node in leaves.get("Weight", ()):
            name, parameter = found = node.attrs
            self._weights[name] = parameter
            for key in (name, node.value, parameter):
                self._parameters[key] = found

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
        Tensor, or the only output's array. Raises InputError, ShapeError, DTypeError, DimError.
        """
        if named or inputs.__class__ is not dict:
            inputs = merged("inputs", inputs, named)
        with self._lock:
            ready = self._ready(inputs, dims, out)
            if self._newest != Parameter.newest:
                self._find_locks()
            with self._held:
                ready.binding.bound.run(ready.used, ready.outputs)
                for parameter in self._trained:
                    parameter.changed()
            self._keep(ready)
        return self._outputs.results(ready.outputs)

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs that a run reads, in order."""
        return self._input_names

    def at(
        self, shapes: Sequence[tuple[int, ...]], dims: Mapping[str, int] | None = None
    ) -> Addressed:
        """The program for inputs of these shapes, one for each of `input_names`, and dims that they
        do not give: to be run on memory that others own. Raises as a call does.
        """
        with self._lock:
            binding = self._bind_shapes(tuple(shapes), self._shapes, dims)
        if not isinstance(binding.bound, AddressedRunner):
            raise CompileError("at: this backend runs on arrays only; compile with backend='cpu'")
        return Addressed(self, binding.dims, binding.outputs, binding.bound)

    def run_at(
        self,
        bound: AddressedRunner,
        inputs: Sequence[int],
        outputs: Sequence[int],
        sizes: Sequence[int],
    ) -> None:
        """Runs with arrays at these addresses; see `Addressed.run`."""
        with self._lock:
            if self._newest != Parameter.newest:
                self._find_locks()
            if self._held:
                with self._held:
                    bound.run_at(inputs, outputs, sizes)
                    for parameter in self._trained:
                        parameter.changed()
            else:
                bound.run_at(inputs, outputs, sizes)

    def _find_locks(self) -> None:
        """What runs hold: States, and Parameters that some program assigns, in order."""
        self._newest = Parameter.newest
        shared = {*self._states, *(p for p in self._weights.values() if p.lock is not None)}
        ordered = sorted(shared, key=lambda held: held.id)
        self._held = _Held([held.lock for held in ordered if held.lock is not None])

    def _keep(self, ready: _Ready) -> None:
        self._arrays, self._shapes, self._used, self._binding, _ = ready

    def _ready(self, inputs: Given | None, dims: Mapping[str, int] | None, out: Any) -> _Ready:
        """All checks of a call, then sets the weights that it gives."""
        given = self._receive(inputs) if inputs else self._nothing()
        used = self._completed(given.arrays)
        binding = self._bind(used, given.shapes, dims)
        if self._checks:
            self._check_indices(used, given.slots, binding)
        if not self._has_weights:
            self._check_weights(given.weights)
        if out is None:
            outputs = self._outputs.take(binding.outputs)
        else:
            outputs = self._outputs.take_into(binding.outputs, out, self._owned(used))
        for parameter, array in given.weights:
            parameter.set(array)
        return _Ready(given.arrays, given.shapes, used, binding, outputs)

    def _nothing(self) -> _Received:
        return _Received(self._arrays, set(), [], self._shapes)

    def _receive(self, inputs: Given) -> _Received:
        """Checks dtypes and names; changes nothing."""
        received = _Received(self._arrays.copy(), set(), [], self._shapes)
        for key, value in inputs.items():
            leaf = key if isinstance(key, str) else getattr(key, "value", key)
            slot = self._slots.get(leaf)
            if slot is not None:
                spec = self._inputs[slot]
                received.arrays[slot] = accept(spec.name, value, spec.dtype)
                received.slots.add(slot)
            elif leaf in self._parameters or leaf not in self._declared:
                name, parameter = self._parameter(key)
                received.weights.append((parameter, fitting(name, parameter, value)))
            elif shapes := self._sources.taken(received.shapes, leaf, value):
                received = received._replace(shapes=shapes)
        return received

    def _completed(self, arrays: list[Array | None]) -> list[Array]:
        """`arrays` with the graph's own values in the open slots."""
        used: list[Array] = []
        for slot, array in enumerate(arrays):
            if array is None:
                spec = self._inputs[slot]
                value = self._values.get(spec.name)
                if value is None:
                    raise missing_input(spec)
                array = accept(spec.name, value, spec.dtype)
            used.append(array)
        return used

    def _bind(self, used: list[Array], beside: Shapes, dims: Mapping[str, int] | None) -> _Binding:
        if dims is not None and not isinstance(dims, Mapping):
            raise DimError(f'dims: takes a dict, as {{"s": 3}}; got a {type(dims).__name__}')
        if beside:
            beside = self._sources.completed(beside, self._values)
        return self._bind_shapes(tuple([array.shape for array in used]), beside, dims)

    def _bind_shapes(
        self, shapes: tuple[tuple[int, ...], ...], beside: Shapes, dims: Mapping[str, int] | None
    ) -> _Binding:
        key = (shapes, beside, tuple(dims.items()) if dims else ())
        last = self._binding
        if last is not None and last.key == key:
            return last
        found = self._bindings.get(key)
        if found is None:
            given = self._sources.given(beside)
            found = self._new_binding(key, self._signature.resolve(shapes, dims or {}, given))
            if len(self._bindings) >= MAX_BINDINGS:
                self._bindings.popitem(last=False)
            self._bindings[key] = found
        else:
            self._bindings.move_to_end(key)
        return found

    def _new_binding(self, key: _Key, bound: Bound) -> _Binding:
        dims, values = bound
        return _Binding(key, dims, self._outputs.plan(dims, values), self._bound(dims))

    def _bound(self, dims: Dims) -> BoundRunner:
        return self._variant(dims).runner.bind(dims, self._input_names, self._outputs.names)

    def _variant(self, dims: Dims) -> Variant:
        return next(variant for variant in self._variants if variant.takes(dims))

    def _check_indices(self, used: list[Array], slots: set[int], binding: _Binding) -> None:
        """Inputs given again, and all where an extent may have changed."""
        same = binding is self._binding and bool(self._used)
        for slot, use in self._checks:
            if slot in slots or not (same and used[slot] is self._used[slot]):
                use.check(used[slot], binding.dims)

    def _check_weights(self, coming: list[tuple[Parameter, Array]]) -> None:
        set_now = [parameter for parameter, _ in coming]
        missing = [
            name for name, p in self._weights.items() if p.stored is None and p not in set_now
        ]
        if missing:
            shown = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
            raise InputError(
                f"{len(missing)} weights have no value: {shown}; call exe.set({{name: array}}) or "
                "exe.load_state_dict(...) first"
            )
        self._has_weights = not coming

    def _owned(self, used: list[Array]) -> list[Array]:
        """What no output may share memory with."""
        buffers = [parameter.stored for parameter in self._weights.values()]
        buffers += [state.buffer for state in self._states if isinstance(state, State)]
        buffers += [state.spare for state in self._states]
        return [*used, *(each.array for each in buffers if isinstance(each, HostBuffer))]

    def release(self) -> None:
        """Lets go of the inputs that calls gave: the next call gives them anew."""
        with self._lock:
            self._arrays = [None] * len(self._inputs)
            self._used = []

    def to(self, device: Any) -> Executable:
        """The same graph compiled by the same options for another device ("cpu", "opencl:0").

        Weights and States are shared, and what is set on the graph; inputs set on this executable
        are not. Raises InputError for a device that cannot be used.
        """
        if self._for_device is None:
            raise CompileError("to: this executable was not made by lm.compile; compile its graph")
        return self._for_device(str(device))

    # --- values for good

    def set(self, values: Given | None = None, **named: Any) -> None:
        """Sets weights (and inputs) for good, by name, Tensor or Parameter: all of them or none."""
        with self._lock:
            received = self._receive(merged("set", values, named))
            for slot in received.slots:
                array = received.arrays[slot]
                assert array is not None
                check_shape(self._inputs[slot].name, array.shape, self._inputs[slot].shape)
            for parameter, array in received.weights:
                parameter.set(array)
            self._arrays, self._shapes = received.arrays, received.shapes

    def load_state_dict(self, weights: Mapping[str, Any], strict: bool = True) -> None:
        """Sets every weight of the graph by name; not strict: others may be missing or unexpected.

        Raises InputError that lists missing and unexpected names; then nothing is set.
        """
        missing = [name for name in self._weights if name not in weights]
        known = self._declared.union(self._weights)
        unexpected = [name for name in weights if name not in known]
        if strict and (missing or unexpected):
            raise InputError(
                "load_state_dict: the names differ from the graph's weights; "
                f"missing: {', '.join(missing) or 'none'}; "
                f"unexpected: {', '.join(unexpected) or 'none'}"
            )
        self.set({name: value for name, value in weights.items() if name in self._weights})

    def _parameter(self, key: Any) -> tuple[str, Parameter]:
        found = self._parameters.get(key if isinstance(key, str) else getattr(key, "value", key))
        if found is None:
            known = ", ".join([*(spec.name for spec in self._inputs), *self._weights]) or "none"
            name = key if isinstance(key, str) else "this tensor"
            raise InputError(f"{name}: no such input or weight; this graph takes {known}")
        return found

    # --- forks

    def _pause(self, seconds: float) -> bool:
        """Waits for a run in another thread to end, and lets none begin before `_resume`."""
        return self._lock.acquire(timeout=max(0.0, seconds))

    def _resume(self) -> None:
        self._lock.release()

    def _abandon_run(self) -> None:
        """In a child: forgets a run that another thread of the parent goes on with.

        A State may hold some of its elements from before the run and some from after it.
        """
        self._binding = None
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
            if dims is None and self._binding is not None:
                at = self._binding.dims
            else:
                at = self._signature.upper_ends(dims or {})
            report = replace(self._bound(at).report(), compiled=self._variant(at).compiled)
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
        """Runs `runs` times as a call does and as often with a clock: the report with medians.

        States are left as they were. Raises as a call does.
        """
        if runs < 1:
            raise InputError(f"profile: runs = {runs}; takes an int >= 1")
        self._find_locks()
        with self._lock, self._held:
            ready = self._ready(merged("profile", inputs, named), dims, None)
            bound = ready.binding.bound
            kept = [(state, state.buffer.copy()) for state in self._states]
            taken = []
            try:
                for _ in range(runs):
                    start = time.perf_counter()
                    bound.run(ready.used, ready.outputs)
                    taken.append(time.perf_counter() - start)
                sites = np.median(bound.profile(ready.used, ready.outputs, runs), 0).tolist()
            finally:
                for state, values in kept:
                    state.buffer.write(values)
                for parameter in self._trained:
                    parameter.changed()
            self._keep(ready)
            at = ready.binding.dims
            peaks = self._variant(at).runner.peaks()
            self._profiles[frozenset(at.items())] = _Profile(sites, median(taken), peaks)
            return self.report()

    def memory_report(self) -> MemoryReport:
        """What is held now, in bytes."""
        with self._lock:
            held = [variant.runner.memory() for variant in self._variants]
            states = [s.buffer for s in self._states if isinstance(s, State)]
            states += [s.spare for s in self._states if s.spare is not None]
            return MemoryReport(
                input_bytes=_bytes_of(self._used or self._arrays),
                weight_bytes=_bytes_of(_once(p.stored for p in self._weights.values())),
                derived_bytes=sum(memory.derived_bytes for memory in held),
                state_bytes=_bytes_of(states),
                arena_bytes=sum(memory.arena_bytes for memory in held),
                scratch_bytes=sum(memory.scratch_bytes for memory in held),
                output_pool_bytes=self._outputs.free_bytes,
            )


def _states(graph: Graph) -> tuple[Assignable, ...]:
    """Every State that the graph reads or assigns, and every Parameter that it assigns, in the
    order in which locks are taken.
    """
    found: set[Assignable] = {sink.state for sink in graph.sinks if isinstance(sink, Assign)}
    for block in blocks(graph):
        found.update(node.attrs.state for node in block.get("State", ()))
        for node in block.get("Loop", ()):
            found.update(state for states in node.attrs.assigned for state in states or ())
    return tuple(sorted(found, key=lambda state: state.id))


def _once(held: Iterable[Buffer | None]) -> list[Buffer]:
    """Each memory once: what packs a weight is read in several dtypes from one."""
    found: dict[Any, Buffer] = {}
    for each in held:
        if each is not None:
            place = each.address if isinstance(each, HostBuffer) else id(each)
            found.setdefault((place, each.nbytes), each)
    return list(found.values())


def _bytes_of(held: Iterable[Array | Buffer | None]) -> int:
    return sum(each.nbytes for each in held if each is not None)


_live: WeakValueDictionary[int, Executable] = WeakValueDictionary()
_paused: dict[int, list[Executable]] = {}  # by the thread that forks


def _before_fork() -> None:
    end = time.monotonic() + FORK_SECONDS
    paused = _paused[threading.get_ident()] = []
    for each in list(_live.values()):
        if each._pause(end - time.monotonic()):
            paused.append(each)


def _after_in_parent() -> list[Executable]:
    paused = _paused.pop(threading.get_ident(), [])
    for each in paused:
        each._resume()
    return paused


def _after_in_child() -> None:
    whole = set(map(id, _after_in_parent()))
    for each in list(_live.values()):
        if id(each) not in whole:
            each._abandon_run()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)

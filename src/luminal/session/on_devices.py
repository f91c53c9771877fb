"""Programs on a mesh whose ranks are all in this process: a thread and a device for each.

Each rank has the program that it would have under a launcher. A call cuts the arrays that it is
given, runs all ranks at once, and puts together what they give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NoReturn, TypeVar

import numpy as np

from luminal.backends import registry
from luminal.base.errors import (
    CompileError,
    DimError,
    DTypeError,
    InputError,
    ShapeError,
)
from luminal.distribute.held import owners
from luminal.distribute.here import running, spreads_of
from luminal.distribute.layout import Layout
from luminal.distribute.mesh import Mesh
from luminal.distribute.parts import part, put, unpadded
from luminal.hlir import graph as hlir
from luminal.hlir.graph import Output
from luminal.hlir.ops import Value
from luminal.hlir.sharding import in_order
from luminal.runtime.arrays import Array, Given, merged
from luminal.runtime.binding import Signature, dims_told
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.local import LocalEngine, World, run_here
from luminal.runtime.executable import ON_DEVICE, Executable
from luminal.runtime.leaves import Leaves
from luminal.runtime.locks import assignable
from luminal.runtime.report import MemoryReport, Report
from luminal.runtime.results import Results
from luminal.runtime.run import Run
from luminal.session import graph as session
from luminal.session.on_mesh import engine_for, world_of
from luminal.shape.expression import Symbol

T = TypeVar("T")
REFUSALS = (InputError, ShapeError, DTypeError, DimError)
"""What a run may be refused by before any rank has begun it."""


def on_devices(
    graph: session.Graph, mesh: Mesh, backend: str | None, collectives: str | None, **options: Any
) -> OnDevices:
    """The program of a mesh of this process, compiled by all its ranks as `lm.compile` says."""
    engine_for(mesh, "compile")
    check_devices(mesh)
    if backend is not None:
        raise InputError(
            f"compile: backend={backend!r}, and the mesh has devices of its own, "
            f"{', '.join(mesh.devices)}; leave backend= out"
        )
    frozen = graph.graph()
    if graph.is_by_rank and (held := assignable(frozen)):
        raise InputError(
            f"{held[0].name}: a program that is written rank by rank (lm.spmd) has a value of its "
            "own on each rank, and all ranks of this mesh are in one process, which has one; pass "
            "it as an input, or launch ranks"
        )
    world = world_of(mesh)
    order = "tree" if world.unlike and collectives is None else collectives

    def compiled(engine: Engine) -> Executable:
        in_order.set(world.unlike)  # of this rank's context
        device = mesh.devices[engine.rank]
        return session.compile(graph, device, mesh=mesh, collectives=order, **options)

    return OnDevices(graph, frozen, mesh, run_here(world, compiled), options["mode"])


def check_devices(mesh: Mesh) -> None:
    """Raises InputError for devices that cannot be used, or that two ranks cannot share: a run
    waits for other ranks while it has the device.
    """
    for device in mesh.devices:
        name = registry.usable("Mesh", device).name
        used = [other for other in mesh.devices if registry.usable("Mesh", other).name == name]
        if len(used) > 1 and not name.startswith("cpu"):
            raise InputError(
                f"Mesh: {len(used)} ranks are on {name!r}, and only the CPU takes several; name "
                "each device once"
            )


class OnDevices(Executable):
    """A compiled graph on the devices of a mesh: takes and gives whole arrays, of programs that are
    written rank by rank those of all ranks, stacked along a first dimension.

    `graph` is what was recorded.
    """

    def __init__(
        self, recorded: session.Graph, graph: hlir.Graph, mesh: Mesh, ranks: list[Executable],
        mode: Any,
    ) -> None:  # fmt: skip
        self.graph, self._on, self._ranks = graph, mesh, ranks
        self._lock = running
        self._is_by_rank = recorded.is_by_rank
        self._title = f"{recorded.name}, {', '.join(mesh.devices)}, {mode}"
        self._values = recorded.values
        self._leaves = Leaves(graph, Signature(graph), recorded.leaves)
        self._weights, self._sources = self._leaves.weights, self._leaves.sources
        self._inputs_by = {n.attrs.name: n for n in graph.by_op().get("Input", ())}
        self.release()
        self._sinks = [s for s in graph.sinks if isinstance(s, Output) and not s.hidden]
        self._places: dict[str | Value, int] = {s.name: k for k, s in enumerate(self._sinks)}
        for k, sink in enumerate(self._sinks):
            self._places.setdefault(sink.value, k)
        self._spreads = dict.fromkeys(spreads_of(owners(ranks[0].graph)))
        self._assigned = {held.spread for held in assignable(ranks[0].graph)} - {None}
        self._join()

    def _join(self) -> None:
        """Has the ranks meet anew."""
        world = self._world = world_of(self._on)
        for rank, exe in enumerate(self._ranks):
            exe.join(_engines(world, self._on, rank))

    # --- running

    def __call__(
        self,
        inputs: Given | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **named: Any,
    ) -> Results:
        """Runs once on all devices. What it takes and raises is as of any Executable; `out` may
        not be "device". An error of one rank is that of all, and the next run is as if it had not
        been; Parameters and States that a run had begun to replace have no value then.
        """
        if isinstance(out, str):
            raise InputError(
                f"out: {out!r}: the outputs are put together on the host; leave out= out"
                if out == ON_DEVICE
                else f"out: {out!r}; takes arrays by output name"
            )
        with self._lock:
            by_rank, own_dims, told = self._cut(merged("inputs", inputs, named), dims)
            results = self._together(lambda exe, k: exe(by_rank[k], dims=told))
            at = [{**own_dims, **exe.last_dims} for exe in self._ranks]
            arrays = [self._joined(sink.name, results, at) for sink in self._sinks]
            return Results(self._written(arrays, out), self._places)

    execute_with_capture = __call__

    def start(
        self,
        inputs: Given | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        out: Any = None,
        **named: Any,
    ) -> Run:
        """Runs once; the run is over when this returns."""
        return Run(self(inputs, dims=dims, out=out, **named), None)

    def _together(self, work: Callable[[Executable, int], T]) -> list[T]:
        """What all ranks give at once, each in its thread. Where one fails, all do."""
        for spread in self._spreads:
            spread.bring()
        try:
            return run_here(
                self._world, lambda engine: work(self._ranks[engine.rank], engine.rank),
                finishes=True,
            )  # fmt: skip
        except KeyboardInterrupt:
            if self._world.aborted is not None:
                self._fail()
            raise
        except BaseException as error:
            self._join()
            if not isinstance(error, REFUSALS):
                self._fail()
            raise

    def _fail(self) -> None:
        """After a run that ended in the middle."""
        self._join()
        for spread in self._assigned:
            spread.is_lost = True

    def _cut(
        self, arguments: Given, dims: Mapping[str, int] | None
    ) -> tuple[list[dict[str, Any]], dict[str, int], dict[str, int]]:
        """What each rank is given, its own dims and those of all, as far as whole arrays tell them;
        sets the weights that are given.
        """
        arrays, slots, weights, shapes = self._leaves.receive(self._given, self._shapes, arguments)
        coming: dict[str, Any] = {}
        for slot, name in enumerate(self._inputs_by):
            if slot in slots:
                coming[name] = arrays[slot]
            elif arrays[slot] is None and name in self._values:
                coming[name] = np.asarray(self._values[name])
        # Ranks are told the dims of inputs that nothing reads, whose parts no layout says.
        unread = self._sources.given(self._sources.completed(shapes, self._values))
        shaped = [(spec, shape[self._is_by_rank :]) for spec, shape in unread]
        told = dims_told(shaped, dims or {})
        own_dims = self._own_dims(coming, told)
        by_rank = [
            {name: self._part(name, array, k, own_dims) for name, array in coming.items()}
            for k in range(self._on.size)
        ]
        for parameter, value in weights:
            parameter.set(value)
        self._given, self._shapes = arrays, shapes
        return by_rank, own_dims, told

    def _own_dims(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, int]:
        """What dims are for one rank, where whole arrays or a caller say what they are for all."""
        whole = dict(dims)
        for name, array in arrays.items():
            shape = self._inputs_by[name].types[0].shape
            if not self._is_by_rank and len(shape) == array.ndim:
                pairs = zip(shape, array.shape, strict=True)
                whole |= {extent.name: n for extent, n in pairs if isinstance(extent, Symbol)}
        parts = self._ranks[0].on_ranks.parts
        for name, n in whole.items():
            if n % parts.get(name, 1):
                raise DimError(
                    f"{name}: {n} rows over {parts[name]} ranks do not divide; give a multiple of "
                    f"{parts[name]}"
                )
        return {name: n // parts.get(name, 1) for name, n in whole.items()}

    def _part(self, name: str, array: Array, rank: int, dims: Mapping[str, int]) -> Array:
        if self._is_by_rank:
            ranks = self._on.size
            if array.ndim == 0 or len(array) != ranks:
                raise ShapeError(
                    f"{name}: the program is written rank by rank, for {ranks} ranks, and was "
                    f"given an array of shape {array.shape}; stack those of all: ({ranks}, ...)"
                )
            return np.ascontiguousarray(array[rank])
        lies = self._ranks[rank].on_ranks.lies
        layout: Layout = lies.inputs.get(name, ())
        if not any(layout):
            return array
        extents = self._inputs_by[name].types[0].shape
        is_fixed = len(extents) == array.ndim and all(
            not extent.is_const or extent.value == n
            for extent, n in zip(extents, array.shape, strict=True)
        )
        if not is_fixed:
            shown = ", ".join(map(str, extents))
            raise ShapeError(f"{name}: expected shape ({shown}), got {array.shape}")
        at = self._on.coordinates(rank)
        return unpadded(part(array, layout, at, dims), array.shape, layout, at, dims)

    def _joined(self, name: str, results: list[Results], at: list[dict[str, int]]) -> Array:
        """The whole of an output, of what the ranks have of it."""
        if self._is_by_rank:
            return np.stack([result[name] for result in results])
        lies = self._ranks[0].on_ranks.lies
        layout = lies.outputs[name]
        if not any(layout):
            return results[0][name]
        shape = tuple(int(n.evaluate(at[0])) for n in lies.output_shapes[name])
        whole = np.empty(shape, results[0][name].dtype)
        for rank, result in enumerate(results):
            put(whole, result[name], layout, self._on.coordinates(rank), at[rank])
        return whole

    def _written(self, arrays: list[Array], out: Any) -> list[Array]:
        """The outputs, those that a caller has arrays for in these."""
        if out is None:
            return arrays
        wanted = out if isinstance(out, Mapping) else {self._sinks[0].name: out}
        for key, target in wanted.items():
            place = self._places.get(key if isinstance(key, str) else getattr(key, "value", key))
            if place is None:
                raise InputError(f"out: {key!r} is not an output; they are {', '.join(self.names)}")
            if target.shape != arrays[place].shape or target.dtype != arrays[place].dtype:
                raise ShapeError(
                    f"out: {self._sinks[place].name}: expected {arrays[place].dtype} of shape "
                    f"{arrays[place].shape}, got {target.dtype} of {target.shape}"
                )
            target[...] = arrays[place]
            arrays[place] = target
        return arrays

    # --- what is asked of any Executable

    @property
    def names(self) -> list[str]:
        """The names of the outputs."""
        return [sink.name for sink in self._sinks]

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs that a run reads, in order."""
        return self._ranks[0].input_names

    @property
    def device(self) -> None:
        """Nothing: there are several devices."""
        return None

    @property
    def interface(self) -> str:
        """What a call takes and gives, whole."""
        takes = [f"{name}: {node.types[0]}" for name, node in self._inputs_by.items()]
        gives = [f"{sink.name}: {sink.value.type}" for sink in self._sinks]
        return f"{', '.join(takes) or 'nothing'} -> {', '.join(gives) or 'nothing'}"

    def __repr__(self) -> str:
        return f"Executable({self.interface}; {self._title})"

    def explain_sharding(self) -> str:
        """The devices, and what any program on a mesh says."""
        ranks = ", ".join(f"rank {k} on {name}" for k, name in enumerate(self._on.devices))
        return f"in one process: {ranks}\n{self._ranks[0].explain_sharding()}"

    def report(self, dims: Mapping[str, int] | None = None) -> Report:
        """The first rank's report, which prints those of all (`ranks`)."""
        return self._reported([exe.report(dims) for exe in self._ranks])

    def profile(
        self,
        inputs: Given | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        runs: int = 20,
        **named: Any,
    ) -> Report:
        """All ranks profile at once, as any Executable does; their reports."""
        with self._lock:
            by_rank, _, told = self._cut(merged("profile", inputs, named), dims)
            asked = {"dims": told, "runs": runs}
            return self._reported(
                self._together(lambda exe, k: exe.profile(by_rank[k], **asked))  # type: ignore[arg-type]
            )

    def _reported(self, reports: list[Report]) -> Report:
        named = zip(self._on.devices, reports, strict=True)
        return replace(reports[0], ranks=tuple((f"rank on {n}", one) for n, one in named))

    def memory_report(self) -> MemoryReport:
        """The bytes that all ranks hold together."""
        reports = [exe.memory_report() for exe in self._ranks]
        names = [field.name for field in fields(MemoryReport)]
        return MemoryReport(*(sum(getattr(one, name) for one in reports) for name in names))

    def text(self, stage: str) -> str:
        """A stage of each rank's compile."""
        ranks = zip(self._on.devices, self._ranks, strict=True)
        return "\n\n".join(f"# {name}\n{exe.text(stage)}" for name, exe in ranks)

    def set(self, values: Given | None = None, **named: Any) -> None:
        """Sets weights (and inputs) for good, by name, Tensor or Parameter."""
        with self._lock:
            by_rank, _, _ = self._cut(merged("set", values, named), None)
            for exe, arrays in zip(self._ranks, by_rank, strict=True):
                exe.set(arrays)

    def release(self) -> None:
        """Lets go of the inputs that calls gave."""
        self._given: list[Array | None] = [None] * len(self._inputs_by)
        self._shapes = self._sources.none
        for exe in self._ranks:
            exe.release()

    def to(self, device: Any) -> NoReturn:
        """Raises CompileError: the mesh says which devices there are."""
        raise CompileError(f"to: the program is for {', '.join(self._on.devices)}; compile anew")

    def at(self, *_: Any, **__: Any) -> NoReturn:
        """Raises CompileError: a program of several devices runs on arrays only."""
        raise CompileError("at: a program of several devices runs on arrays only")

    def device_seconds(
        self,
        inputs: Given | None = None,
        *,
        dims: Mapping[str, int] | None = None,
        runs: int = 1,
        **named: Any,
    ) -> float:
        """Raises CompileError: each device has a clock of its own; `profile` has all of them."""
        raise CompileError("device_seconds: each device has its own clock; see profile(...)")


def _engines(world: World, mesh: Mesh, rank: int) -> dict[str, LocalEngine]:
    """What a rank has of each mesh axis of several ranks."""
    engines = {}
    for name, ranks in zip(mesh.names, mesh.shape, strict=True):
        if ranks > 1:
            group = mesh.group(name, rank)
            engines[name] = LocalEngine(world, tuple(group), group.index(rank), name)
    return engines

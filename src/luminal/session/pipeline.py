"""`PipelineParallel`: a model whose layers lie on several ranks, and the programs of one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from luminal.backends import registry
from luminal.backends.backend import Interpreter
from luminal.base.costs import LINK
from luminal.base.errors import InputError
from luminal.base.number_kinds import is_count
from luminal.base.records import dataclass
from luminal.distribute.distribute import distribute
from luminal.distribute.held import owners, spec_of_held
from luminal.distribute.layout import Layout, of_spec
from luminal.distribute.mesh import Mesh, Spec
from luminal.distribute.pipeline.cut import Cut, Microbatch, cut
from luminal.distribute.pipeline.pieces import Key, PieceGraph, Pieces, pieces
from luminal.distribute.pipeline.schedule import FOUND, Piece, Schedule, schedule_of
from luminal.distribute.pipeline.search import found
from luminal.distribute.pipeline.simulate import check_pieces, verified
from luminal.distribute.pipeline.steps import Plan
from luminal.distribute.plans import follow
from luminal.distribute.price import Machine, node_seconds
from luminal.hlir.attributes import MarkAttrs, ShardAttrs
from luminal.hlir.graph import Builder, Graph, Output, copied
from luminal.hlir.ops import Value
from luminal.hlir.prune import pruned
from luminal.nn.module import Module
from luminal.runtime.collectives.engine import Engine
from luminal.runtime.collectives.local import thread_engine
from luminal.runtime.executable import Executable
from luminal.session import graph as session
from luminal.session.choosing import machine_of
from luminal.session.device_choice import chosen_device
from luminal.session.on_mesh import parts_on
from luminal.session.parallel import MpiBackend, _Wrapped, name_by_path
from luminal.shape.expression import const

PIPE = "pipe"
"""The mesh axis along which stages lie."""
INTERPRETED = Machine(1e11, 1e10, float("inf"))
"""What stages are weighed by where a backend has no costs: the ratio of a usual core's."""


class PipelineParallel(_Wrapped):
    """A model whose stages lie on the ranks along the mesh axis "pipe": stage s on rank s modulo
    these, which run microbatches one behind the other.

    `stages`: how many (as many as ranks); `microbatches`: into how many a rank's batch is cut
    (twice the stages). `schedule`: "gpipe", "1f1b", "interleaved" (several stages a rank),
    "zero_bubble", "found" (searched for the predicted times), or a `Schedule`. `mesh`: one with
    further axes, "data" and "tensor", as lm.Mesh((2, 2), ("pipe", "data")); by default all ranks
    are along "pipe". `plan`: how Parameters are cut over those others ("tensor", "zero1", ...).

    `fit` trains it, and `luminal.training.PipelineStep` takes one step. Where the model is called
    in a graph, that is a program of one rank, of the whole model. Raises InputError for numbers
    that do not fit each other.
    """

    def __init__(
        self,
        model: Module,
        backend: MpiBackend,
        stages: int | None = None,
        microbatches: int | None = None,
        schedule: str | Schedule = "1f1b",
        mesh: Mesh | None = None,
        plan: str | None = None,
    ) -> None:
        if not isinstance(backend, MpiBackend):
            raise InputError(
                f"PipelineParallel: got a {type(backend).__name__}; give a backend, as "
                "lm.distributed.MpiBackend()"
            )
        mesh = Mesh((backend.size,), (PIPE,)) if mesh is None else mesh
        if not isinstance(mesh, Mesh):
            raise InputError(
                f"PipelineParallel: mesh is a {type(mesh).__name__}; give lm.Mesh((2, 2), "
                '("pipe", "data"))'
            )
        if backend.devices or mesh.devices:
            raise InputError(
                "PipelineParallel: each stage is a process of its own, and these ranks are devices "
                "of one; start ranks by `luminal launch`, or give DataParallel or TensorParallel"
            )
        super().__init__(model, mesh)
        if mesh.size != backend.size:
            raise InputError(
                f"PipelineParallel: the mesh {mesh.shape} has {mesh.size} ranks, and "
                f"{backend.size} were launched"
            )
        self.engine = backend.engine
        self.place = PipelinePlace.of(mesh, self.engine)
        ranks = mesh.ranks(PIPE, "PipelineParallel")
        self.stages = ranks if stages is None else stages
        own_schedule = schedule if isinstance(schedule, Schedule) else None
        name = "" if isinstance(schedule, Schedule) else schedule
        if microbatches is None:
            microbatches = 2 * self.stages if own_schedule is None else own_schedule.microbatches
        self.microbatches = microbatches
        for what, count in (("stages", self.stages), ("microbatches", microbatches)):
            if not is_count(count):
                raise InputError(
                    f"PipelineParallel: {what} is {count!r}; give an int of at least 1"
                )
        self.schedule = schedule
        if own_schedule is not None:
            self._check(own_schedule, ranks)
        elif name != FOUND:
            schedule_of(name, ranks, self.stages, microbatches)
        if plan is not None:
            if self.place.mesh is None:
                raise InputError(
                    f"PipelineParallel: plan={plan!r} cuts Parameters over further mesh axes; give "
                    'a mesh that has them, as lm.Mesh((2, 2), ("pipe", "tensor"))'
                )
            follow(model.named_parameters(remove_duplicate=False), plan, self.place.mesh)
        name_by_path(model)

    def _check(self, own_schedule: Schedule, ranks: int) -> None:
        for what, has, wanted in (
            ("ranks", own_schedule.ranks, ranks),
            ("stages", own_schedule.stages, self.stages),
            ("microbatches", own_schedule.microbatches, self.microbatches),
        ):
            if has != wanted:
                raise InputError(
                    f"PipelineParallel: the schedule {own_schedule.name!r} is for {has} "
                    f"{what}, and there are {wanted}; give one for these"
                )
        verified(Plan.of(own_schedule))

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """What the model gives."""
        return self.model(*inputs, **options)


@dataclass(frozen=True, slots=True)
class PipelinePlace:
    """One rank's place: `pipe` are the ranks whose stages make a whole with its own, `stage` those
    that have the same stages, which lie on `mesh`; None where there is but one.
    """

    pipe: Engine
    stage: Engine
    mesh: Mesh | None

    @staticmethod
    def of(mesh: Mesh, engine: Engine) -> PipelinePlace:
        """The place of this rank. All ranks must ask."""
        mesh.ranks(PIPE, "PipelineParallel")
        if mesh.size == mesh.ranks(PIPE):
            alone = engine.split([[rank] for rank in range(engine.size)], "stage")
            return PipelinePlace(engine, alone, None)
        pipe = engine.split(mesh.groups(PIPE), PIPE)
        together: dict[int, list[int]] = {}
        for rank in range(mesh.size):
            together.setdefault(mesh.coordinates(rank)[PIPE], []).append(rank)
        axes = [
            (name, ranks)
            for name, ranks in zip(mesh.names, mesh.shape, strict=True)
            if name != PIPE
        ]
        inner = Mesh(tuple(ranks for _, ranks in axes), tuple(name for name, _ in axes))
        return PipelinePlace(pipe, engine.split([*together.values()], "stage"), inner)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Inside the block programs are those of the ranks that have this one's stages."""
        token = thread_engine.set(self.stage)
        try:
            yield
        finally:
            thread_engine.reset(token)


class _Recorded(session.Graph):
    """A graph that is there already, as one that is being recorded: `lm.compile` takes it."""

    def __init__(self, name: str, graph: Graph) -> None:
        super().__init__(name)
        self._graph = graph
        leaves = [*graph.by_op().get("Input", ()), *graph.by_op().get("Weight", ())]
        self.leaves = {node.attrs.name: node.value for node in leaves}

    def graph(self) -> Graph:
        return self._graph


@dataclass(frozen=True, slots=True)
class Staged:
    """A step in pieces, their plan, and how what goes from one to another lies on the mesh."""

    cut: Cut
    pieces: Pieces
    plan: Plan
    graphs: Mapping[Key, PieceGraph]
    specs: Mapping[str, Spec]
    place: PipelinePlace

    def compiled(self, key: Key, graph: Graph, **options: Any) -> Executable:
        """The program of one of this rank's pieces."""
        kind, stage = key
        recorded = _Recorded(f"{kind} of stage {stage}", graph)
        with self.place.compiling():
            return session.compile(recorded, mesh=self.place.mesh, **options)

    def shape_of(self, name: str) -> tuple[tuple[int, ...], Any]:
        """The shape and dtype of this rank's part of a value that goes between pieces."""
        value = self.pieces.names[name]
        shape = tuple(int(extent.value) for extent in value.shape)
        if self.place.mesh is not None:
            spec = self.specs[name]
            shape = tuple(
                n // _parts(self.place.mesh, names) for n, names in zip(shape, spec, strict=True)
            )
        return shape, value.dtype.numpy


def _parts(mesh: Mesh, names: tuple[str, ...]) -> int:
    """Into how many parts these axes cut a dimension."""
    return math.prod(mesh.ranks(name) for name in names)


def staged(model: PipelineParallel, step: Microbatch, device: str | None = None) -> Staged:
    """The step of one microbatch in stages, as all ranks cut it.

    Raises InputError for more stages than the model has layers, and for a schedule that cannot run.
    """
    if step.graph.dims:
        raise InputError(
            f"PipelineParallel: the step has the dim {step.graph.dims[0]}; pipelines take batches "
            "of one shape"
        )
    machine = INTERPRETED
    backend = registry.find(chosen_device(device))
    if not isinstance(backend, Interpreter):
        machine = machine_of(backend, None)
        # All ranks must cut alike, and some may have other threads.
        units = backend.costs.units
        machine = Machine(
            units * backend.costs.contraction_flops, units * backend.costs.memory, machine.memory
        )
    where = cut(step, model.stages, machine, LINK)
    split = pieces(step, where)
    graphs, specs = split.graphs, dict[str, Spec]()
    if model.place.mesh is not None:
        graphs, specs = _laid_out(split, model.place)
    plan = Plan.of(_schedule(model, graphs, split, machine), split.edges)
    verified(plan)
    return Staged(where, split, plan, graphs, specs, model.place)


def _schedule(
    model: PipelineParallel, graphs: Mapping[Key, PieceGraph], split: Pieces, machine: Machine
) -> Schedule:
    if isinstance(model.schedule, Schedule):
        check_pieces(model.schedule)
        return model.schedule
    ranks = model.place.pipe.size
    if model.schedule != FOUND:
        return schedule_of(model.schedule, ranks, model.stages, model.microbatches)
    seconds = {
        key: sum(node_seconds(node, machine) for node in piece.graph.nodes())
        for key, piece in graphs.items()
    }

    def takes(piece: Piece) -> float:
        return seconds.get((piece.kind, piece.stage), 0.0)

    return found(ranks, model.stages, model.microbatches, takes, LINK.latency, edges=split.edges)


# --- on a mesh with further axes


def _laid_out(split: Pieces, place: PipelinePlace) -> tuple[dict[Key, PieceGraph], dict[str, Spec]]:
    """The pieces with marks of how what goes between them lies: as the piece has it that gives it,
    or whole where no spec says that.
    """
    graphs: dict[Key, PieceGraph] = {}
    specs: dict[str, Spec] = {}
    stages = range(split.stages)
    order: list[Key] = [("F", s) for s in stages]
    order += [("I", s) for s in reversed(stages)] + [("W", s) for s in stages]
    assert place.mesh is not None
    for key in order:
        if key not in split.graphs:
            continue
        piece = split.graphs[key]
        graph = _marked(piece.graph, {name: specs[name] for name in piece.takes}, {})
        layouts = _layouts(graph, place)
        new: dict[str, Spec] = {}
        for name in piece.gives:
            new[name] = _spec_of(layouts[name], split.names[name], place.mesh)
        graphs[key] = replace(piece, graph=_marked(graph, {}, new))
        specs |= new
    return graphs, specs


def _layouts(graph: Graph, place: PipelinePlace) -> Mapping[str, Layout]:
    """How a graph's outputs lie on the mesh."""
    assert place.mesh is not None
    held = {owner: spec_of_held(owner) for owner in owners(graph)}
    specs = {owner: spec for owner, spec in held.items() if spec is not None}
    parts = parts_on(place.mesh, place.stage)
    return distribute(pruned(graph, (MarkAttrs,)), place.mesh, None, specs, parts).outputs


def _spec_of(layout: Layout, value: Value, mesh: Mesh) -> Spec:
    """The spec that a layout is; whole where it is none, or has pads."""
    spec = tuple(tuple(cut.axis for cut in cuts) for cuts in layout)
    even = all(
        not names or extent.exact_div(const(_parts(mesh, names))) is not None
        for names, extent in zip(spec, value.shape, strict=True)
    )
    if not even or of_spec(spec, value.shape, mesh, "a value between stages") != layout:
        return ((),) * len(layout)
    return spec


def _marked(graph: Graph, inputs: Mapping[str, Spec], outputs: Mapping[str, Spec]) -> Graph:
    """The graph with marks behind some of its inputs and before some of its outputs."""
    builder, copies = Builder(), dict[Value, Value]()

    def mark(value: Value, spec: Spec) -> Value:
        return builder.make("Shard", (value,), ShardAttrs(spec)).value

    for node in graph.nodes():
        if not node.args:
            builder.keep(node)
            results: tuple[Value, ...] = tuple(Value(node, k) for k in range(len(node.types)))
            if node.op.name == "Input" and node.attrs.name in inputs:
                results = (mark(node.value, inputs[node.attrs.name]),)
        else:
            results = copied(builder, node, [copies[arg] for arg in node.args])
        copies.update((Value(node, k), result) for k, result in enumerate(results))
    sinks = []
    for sink in graph.sinks:
        value = copies[sink.value]
        if isinstance(sink, Output) and sink.name in outputs:
            value = mark(value, outputs[sink.name])
        sinks.append(replace(sink, value=value))
    return replace(graph, sinks=tuple(sinks))

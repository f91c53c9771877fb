"""The pass: a graph, a mesh and what is marked in it to the graph that every rank runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from luminal.base.errors import DimError, GraphError
from luminal.base.records import dataclass
from luminal.distribute.block import PartOf, words_of
from luminal.distribute.layout import Layout, of_spec, whole
from luminal.distribute.mesh import Mesh, Spec, dealt
from luminal.distribute.move import Moved, Reason
from luminal.distribute.partial import settle
from luminal.distribute.project import project
from luminal.distribute.propagate import Sites, spread_all
from luminal.distribute.respell import respelled
from luminal.distribute.rings import Ring, find, to_join
from luminal.distribute.rooms import by_rooms
from luminal.distribute.routes import by_routes
from luminal.hlir.attributes import InputAttrs, Shape, ShardAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Assign, Builder, Graph, Output
from luminal.hlir.ops import Value
from luminal.hlir.substitute import all_nodes, substitute_dims
from luminal.memory.state import Assignable
from luminal.shape.expression import Expression, Symbol, const, symbol
from luminal.shape.view import identity, made


@dataclass(frozen=True, slots=True)
class Distributed:
    """A rank's graph, its collectives with their reasons, and how what goes in and out lies."""

    graph: Graph
    rows: tuple[Moved, ...]
    inputs: Mapping[str, Layout]
    outputs: Mapping[str, Layout]
    dims: Mapping[str, int]
    """How many parts the extent is cut into that a dim stands for, where it is cut."""
    input_shapes: Mapping[str, Shape]
    output_shapes: Mapping[str, Shape]
    """The shapes of the whole, which a part with pads does not tell."""


def distribute(
    graph: Graph,
    mesh: Mesh,
    inputs: Mapping[str, Spec] | None,
    states: Mapping[Assignable, Spec],
    part_of: PartOf,
    order: str = "tree",
) -> Distributed:
    """The graph of every rank. `inputs` (None: what the graph's marks say of them) and `states` say
    how they lie; what is not there is whole.

    A dim that is cut stands in a rank's graph for the rank's own extent. Raises ShapeError where an
    extent does not divide or the mesh lacks an axis.
    """
    if "Collective" in graph.by_op():
        raise GraphError(
            "a graph that is spread over a mesh has collectives of its own; either record all of "
            "it rank by rank (lm.spmd), or mark tensors (x.shard) and leave collectives out"
        )
    _check_names(graph, mesh)
    if inputs is None:
        inputs = marked_inputs(graph)
    parts = _parts_of_dims(graph, mesh, inputs)
    graph = _with_all_assigns(_with_own_dims(graph, parts))
    held = {
        owner: of_spec(spec, tuple(map(const, owner.memory_type[0])), mesh, owner.name)
        for owner, spec in states.items()
    }
    marks = _marks_of(graph, mesh, inputs, held)
    sites, rings = _spread(graph, marks, held)
    if (by_rank := by_routes(graph, sites)) is not graph:
        graph, marks = by_rank, _marks_of(by_rank, mesh, inputs, held)
        sites, rings = _spread(graph, marks, held)
    if (by_experts := by_rooms(graph, mesh, sites, marks[1])) is not graph:
        graph, marks = by_experts, _marks_of(by_experts, mesh, inputs, held)
        sites, rings = _spread(graph, marks, held)
    sums = {node for ring in rings for node in ring.over_keys if node.op.name == "Sum"}
    sums |= to_join(graph, sites)
    if sums:
        graph = respelled(graph, sums)
        marks = _marks_of(graph, mesh, inputs, held)
        sites, rings = _spread(graph, marks, held)
    projection = project(graph, mesh, sites, held, part_of, order, rings)
    ins = {
        node.attrs.name: sites.value(node.value).layout for node in graph.by_op().get("Input", ())
    }
    outs = {
        sink.name: layout
        for sink, layout in zip(graph.sinks, projection.sinks, strict=True)
        if isinstance(sink, Output)
    }
    return Distributed(
        projection.graph, projection.rows, ins, outs, {s.name: n for s, n in parts.items()},
        *_shapes(graph),
    )  # fmt: skip


def _spread(
    graph: Graph, marks: Sequence[Mapping[Value, Layout]], held: Mapping[Assignable, Layout]
) -> tuple[Sites, list[Ring]]:
    """How all sites of a graph lie, and its rings."""
    sites = Sites.of(graph)
    spread_all(graph, sites, marks, held, settle)
    rings = find(graph, sites)
    while rings:
        # What lies around a ring lies as it asks: the queries' scores are whole along the keys.
        closed = Sites.of(graph)
        rings = [ring.on(sites, closed) for ring in rings]
        starts = [site for ring in rings for site in ring.close(closed)]
        spread_all(graph, closed, marks, held, settle, starts)
        sites, before = closed, len(rings)
        rings = [ring for ring in rings if ring.is_cut]
        if len(rings) == before:
            return sites, rings
        if not rings:
            sites = Sites.of(graph)
            spread_all(graph, sites, marks, held, settle)
    return sites, rings


def _check_names(graph: Graph, mesh: Mesh) -> None:
    """Raises DimError for a dim of the user's that has the name of a rank's place on the mesh."""
    places = {dim.name: dim for dim in mesh.dims}
    for dim in graph.dims:
        if places.get(dim.name, dim) is not dim:
            raise DimError(
                f"{dim.name}: this is the name of a rank's own place along a mesh axis; give the "
                "dim, or the axis, another one"
            )


def _with_all_assigns(graph: Graph) -> Graph:
    """The graph with what Loops assign assigned by sinks too: each State lies in a way of its own,
    which need not be that of a trip's result.
    """
    builder, sinks = Builder(), [*graph.sinks]
    for node in graph.by_op().get("Loop", ()):
        for k, states in enumerate(node.attrs.assigned, node.attrs.carried):
            stacked = Value(node, k)
            shape = stacked.shape[1:]
            for trip, state in enumerate(states or ()):
                one = made(stacked.shape, shape, (const(trip), *identity(shape).map))
                sinks.append(Assign(state, builder.view(stacked, one)))
    return Graph(tuple(sinks), graph.dims, graph.requirements)


def _shapes(graph: Graph) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """The shapes of a graph's inputs and of its outputs by name."""
    inputs = {node.attrs.name: node.types[0].shape for node in graph.by_op().get("Input", ())}
    outputs = {sink.name: sink.value.shape for sink in graph.sinks if isinstance(sink, Output)}
    return inputs, outputs


def as_recorded(graph: Graph, mesh: Mesh) -> Distributed:
    """A graph that is one rank's already: it only lacks the dims of the rank's coordinates."""
    _check_names(graph, mesh)
    local = Graph(graph.sinks, (*graph.dims, *mesh.dims), graph.requirements)
    shapes = _shapes(graph)
    inputs, outputs = ({n: whole(len(shape)) for n, shape in by_name.items()} for by_name in shapes)
    rows = tuple(
        Moved(
            node.attrs.kind, node.attrs.axis, node.attrs.ranks, node.args[0].shape,
            node.args[0].dtype, Reason(node.attrs.label, "it is written so"),
        )
        for node in graph.by_op().get("Collective", ())
    )  # fmt: skip
    return Distributed(local, rows, inputs, outputs, {}, *shapes)


def _marks_of(
    graph: Graph, mesh: Mesh, inputs: Mapping[str, Spec], held: Mapping[Assignable, Layout]
) -> tuple[dict[Value, Layout], dict[Value, Layout]]:
    """The values whose layouts are given: inputs and marks, then Parameters and States."""
    first: dict[Value, Layout] = {}
    last: dict[Value, Layout] = {}
    for node in all_nodes(graph):
        match node.attrs:
            case InputAttrs(name=name) if name in inputs:
                first[node.value] = of_spec(
                    inputs[name], node.types[0].shape, mesh, f"input {name!r}"
                )
            case ShardAttrs(spec=spec):
                first[node.value] = of_spec(spec, node.types[0].shape, mesh, words_of(node.value))
            case WeightAttrs(parameter=owner) | StateAttrs(state=owner) if owner in held:
                last[node.value] = held[owner]
    return first, last


def marked_inputs(graph: Graph) -> dict[str, Spec]:
    """The inputs that are only read as one mark says: a rank is given its own part of them."""
    readers: dict[Value, set[Spec | None]] = {}
    for node in graph.nodes():
        for arg in node.args:
            if arg.node.op.name == "Input":
                spec = node.attrs.spec if isinstance(node.attrs, ShardAttrs) else None
                readers.setdefault(arg, set()).add(spec)
    specs = {}
    for value, marks in readers.items():
        (first, *others) = marks
        if first is not None and not others and value not in graph.roots:
            specs[value.node.attrs.name] = first
    return specs


def _parts_of_dims(graph: Graph, mesh: Mesh, inputs: Mapping[str, Spec]) -> dict[Symbol, int]:
    """Into how many parts each dim is cut; what is not there is whole."""
    parts: dict[Symbol, int] = {}
    for node in all_nodes(graph):
        match node.attrs:
            case InputAttrs(name=name) if name in inputs:
                spec, what = inputs[name], f"input {name!r}"
            case ShardAttrs(spec=spec):
                what = words_of(node.value)
            case _:
                continue
        for extent, names in zip(node.types[0].shape, spec, strict=True):
            if isinstance(extent, Symbol):
                ranks = math.prod(mesh.ranks(dealt(name)[0], what) for name in names)
                parts[extent] = math.lcm(parts.get(extent, 1), ranks)
    return {dim: ranks for dim, ranks in parts.items() if ranks > 1}


def _with_own_dims(graph: Graph, parts: Mapping[Symbol, int]) -> Graph:
    """The graph with every dim that is cut written as the ranks times a rank's own extent, a dim of
    the same name.
    """
    replaced: dict[Symbol, Expression] = {}
    for dim, ranks in parts.items():
        lo, hi = dim.lo or 0, dim.hi or ranks
        replaced[dim] = symbol(dim.name, -(-lo // ranks), max(hi // ranks, -(-lo // ranks))) * ranks
    if not replaced:
        return graph
    out = substitute_dims(graph, replaced)
    own_dims = (dim for value in replaced.values() for dim in value.symbols())
    return Graph(out.sinks, (*out.dims, *own_dims), out.requirements)

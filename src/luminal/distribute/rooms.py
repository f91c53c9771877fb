"""Experts with a capacity on a mesh: their rooms go to the ranks that have the experts, and back.

Such a mixture copies rows into rooms, of which each group of tokens has one for each expert, and
reads results out of them. Groups are cut over the ranks, as the batch is, and so are experts: what
lies in between can follow one of them only. Left alone it follows the groups, and each rank gathers
all matrices. Here it follows the experts: marks where rooms are filled and where they are read say
that they are exchanged, by an all_to_all of as many rows as the rooms have.

What lies in between is found by following the experts from their matrices, up to where rows are
looked up or put: what the batch cuts in another dimension changes its cut at these ends. The
gradients of a mixture have the same ends the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from luminal.distribute.edges import edge_of
from luminal.distribute.layout import Cut, Layout, by_axis, of_axes, of_spec
from luminal.distribute.mesh import EXPERT, Mesh, Spec
from luminal.distribute.propagate import Sites, spread
from luminal.hlir.attributes import ShardAttrs
from luminal.hlir.graph import Builder, Graph, copied
from luminal.hlir.ops import Value

_ENDS = ("Gather", "Scatter")


def by_rooms(graph: Graph, mesh: Mesh, sites: Sites, held: Mapping[Value, Layout]) -> Graph:
    """The graph with marks by which rooms go to their experts and back; the graph itself where it
    has none. `sites`: how it would lie as it is; `held`: how Parameters and States do.
    """
    if EXPERT not in mesh.names:
        return graph
    by_experts = _by_experts(graph, held)
    builder = Builder()
    same: dict[Value, Value] = {}
    count = 0
    for node in graph.nodes():
        args = [same[arg] for arg in node.args]
        is_end = node.op.name in _ENDS
        if is_end:
            for k, arg in enumerate(node.args):
                if (specs := _specs(arg, mesh, sites, by_experts)) is not None:
                    batch, experts = specs
                    args[k] = _marked(builder, args[k], experts, batch)
                    count += 1
        for k, result in enumerate(copied(builder, node, args)):
            value = same[Value(node, k)] = result
            if is_end and (specs := _specs(Value(node, k), mesh, sites, by_experts)) is not None:
                same[Value(node, k)] = _marked(builder, value, *specs)
                count += 1
    if not count:
        return graph
    sinks = [replace(sink, value=same[sink.value]) for sink in graph.sinks]
    return Graph(tuple(sinks), graph.dims, graph.requirements)


def _by_experts(graph: Graph, held: Mapping[Value, Layout]) -> Sites:
    """How what lies between the ends would lie if it followed the experts alone."""
    sites = Sites()
    for node in graph.nodes():
        if node.op.name not in _ENDS:
            sites.add(node)
    starts = []
    for value, layout in held.items():
        cut = by_axis(layout).get(EXPERT)
        if cut is not None:
            starts.append(sites.value(value))
            starts[-1].cuts[EXPERT] = cut
    spread(starts)
    return sites


def _specs(value: Value, mesh: Mesh, sites: Sites, by_experts: Sites) -> tuple[Spec, Spec] | None:
    """How rooms lie by the batch, and how by their experts; None of what is no rooms, or where the
    ranks do not divide the experts.
    """
    batch, experts = _cuts(value, sites), _cuts(value, by_experts)
    if EXPERT not in batch or EXPERT not in experts or batch[EXPERT][0] == experts[EXPERT][0]:
        return None
    layouts = [of_axes(len(value.shape), cuts) for cuts in (batch, batch | experts)]
    first, second = (
        tuple(tuple(cut.axis for cut in cuts) for cuts in layout) for layout in layouts
    )
    is_even = [of_spec(spec, value.shape, mesh, "rooms") for spec in (first, second)] == layouts
    return (first, second) if is_even else None


def _cuts(value: Value, sites: Sites) -> dict[str, tuple[int, Cut]]:
    """The cuts of a value, which may be a View, by mesh axis."""
    edge = edge_of(value)
    return edge.of_user(sites.value(edge.value).cuts)


def _marked(builder: Builder, value: Value, before: Spec, after: Spec) -> Value:
    """The value, which lies in one way up to here and in another from here on."""
    for spec in (before, after):
        value = builder.make("Shard", (value,), ShardAttrs(spec)).value
    return value

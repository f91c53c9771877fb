"""A graph as one rank runs it: that of its nodes (`block`), with sinks as they ask for values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from luminal.base.records import dataclass
from luminal.distribute.block import PartOf
from luminal.distribute.layout import Layout, whole
from luminal.distribute.mesh import Mesh
from luminal.distribute.move import Moved, Mover
from luminal.distribute.propagate import Sites
from luminal.distribute.ring_steps import RingBlock
from luminal.distribute.rings import Ring
from luminal.hlir.graph import Assign, Builder, Graph, Sink
from luminal.memory.state import Assignable


@dataclass(frozen=True, slots=True)
class Projection:
    """A rank's graph, the rows of its explanation, and how each sink's value lies."""

    graph: Graph
    rows: tuple[Moved, ...]
    sinks: tuple[Layout, ...]


def project(
    graph: Graph,
    mesh: Mesh,
    sites: Sites,
    states: Mapping[Assignable, Layout],
    part_of: PartOf,
    order: str = "tree",
    rings: Sequence[Ring] = (),
) -> Projection:
    """The graph of every rank of a mesh, for sites and `rings` whose layouts are settled."""
    rows: list[Moved] = []
    mover = Mover(Builder(), rows, mesh, order)
    block = RingBlock(graph.nodes(), graph.roots, sites, mover, part_of, rings)
    block.run()
    sinks: list[Sink] = []
    layouts = []
    for sink in graph.sinks:
        mover.builder.now = sink.value.node.recorded
        if isinstance(sink, Assign):
            layout = states.get(sink.state, whole(len(sink.value.shape)))
            why = f"assigned to {sink.state.name}"
            value = block.at(sink.value, layout, why)
            sinks.append(Assign(part_of(sink.state, layout), value))
        else:
            layout = block.layout_of(sink.value)
            value = block.at(sink.value, layout, f"output {sink.name}")
            sinks.append(replace(sink, value=value))
        layouts.append(layout)
    local = Graph(tuple(sinks), (*graph.dims, *mesh.dims), graph.requirements)
    return Projection(local, tuple(rows), tuple(layouts))

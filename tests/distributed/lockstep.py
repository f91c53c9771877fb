"""All ranks of a graph in lockstep, on NumPy: a node on every rank, a Collective on all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.hlir.attributes import CollectiveAttrs, InputAttrs, LoopAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Graph, Output, topological
from luminal.hlir.ops import Node, Value

Array = Any
Ranks = list[Array]  # what each rank has of a value
Dims = Sequence[Mapping[str, int]]


def lockstep(
    graph: Graph, leaves: Sequence[Mapping[str, Array]], dims: Dims
) -> list[dict[str, Array]]:
    """What each rank has after a run, by name: outputs and assigned States. `leaves`: what each one
    has of Inputs, Weights and States before it.
    """
    walk = _Walk(leaves, dims)
    values = walk.values(graph.roots, {})
    for sink in graph.sinks:
        name = sink.name if isinstance(sink, Output) else sink.state.name
        for after, array in zip(walk.after, values[sink.value], strict=True):
            after[name] = array
    return walk.after


class _Walk:
    def __init__(self, leaves: Sequence[Mapping[str, Array]], dims: Dims) -> None:
        self.leaves, self.dims = leaves, dims
        self.after: list[dict[str, Array]] = [{} for _ in leaves]

    def values(self, roots: Sequence[Value], bound: Mapping[Value, Ranks]) -> dict[Value, Ranks]:
        values = dict(bound)
        for node in topological(roots):
            if node.value not in values:
                results = self.node(node, [values[arg] for arg in node.args])
                values |= {Value(node, k): ranks for k, ranks in enumerate(results)}
        return values

    def node(self, node: Node, args: list[Ranks]) -> list[Ranks]:
        match node.attrs:
            case InputAttrs(name=name) | WeightAttrs(name=name):
                return [[leaves[name] for leaves in self.leaves]]
            case StateAttrs(state=state):
                return [[leaves[state.name] for leaves in self.leaves]]
            case CollectiveAttrs() as attrs:
                return [combined(attrs, args[0])]
            case LoopAttrs() as loop:
                return self.loop(loop, args)
        assert node.op.evaluate is not None
        by_rank = [
            node.op.evaluate(node.attrs, dims, [arg[rank] for arg in args])
            for rank, dims in enumerate(self.dims)
        ]
        return [list(ranks) for ranks in zip(*by_rank, strict=True)]

    def loop(self, loop: LoopAttrs, args: list[Ranks]) -> list[Ranks]:
        carried, leaves, rest = loop.split(args)
        arguments = [node.value for node in loop.body.arguments]
        ys: list[list[Ranks]] = [[] for _ in loop.assigned]
        for trip in range(loop.trips.evaluate(self.dims[0])):
            streams = [
                stream[trip] if count else [array[trip] for array in stream[0]]
                for count, stream in zip(loop.streams, leaves, strict=True)
            ]
            bound = dict(zip(arguments, (*carried, *streams, *rest), strict=True))
            values = self.values(loop.body.results, bound)
            results = [values[result] for result in loop.body.results]
            carried = results[: loop.carried]
            for y, ranks, assigned in zip(ys, results[loop.carried :], loop.assigned, strict=True):
                y.append(ranks)
                for after, array in zip(
                    self.after, ranks if assigned else (), strict=bool(assigned)
                ):
                    after[assigned[trip].name] = array
        stacked = [[np.stack(slices) for slices in zip(*y, strict=True)] for y in ys]
        return [*carried, *stacked]


def combined(attrs: CollectiveAttrs, ranks: Ranks) -> Ranks:
    """The results of a Collective on all ranks."""
    combine = {"Sum": np.add, "Max": np.maximum}.get(attrs.reduction)
    if attrs.kind == "all_gather":
        return [np.concatenate(ranks)] * len(ranks)
    if attrs.kind == "all_to_all":
        parts = [np.split(other, len(ranks)) for other in ranks]
        return [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
    if attrs.kind == "permute":
        source = {target: given for given, target in attrs.pairs}
        return [
            ranks[source[rank]] if rank in source else np.zeros_like(own)
            for rank, own in enumerate(ranks)
        ]
    assert combine is not None
    total = ranks[0]
    for other in ranks[1:]:
        total = combine(total, other)
    return [total] * len(ranks) if attrs.kind == "all_reduce" else np.split(total, len(ranks))

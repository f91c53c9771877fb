"""A graph on many ranks of the oracle, beside the same graph on one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from luminal.backends.reference.interpreter import Arrays, interpret
from luminal.backends.reference.ranks import interpret_ranks
from luminal.base.dtypes import dtype_of
from luminal.distribute.distribute import Distributed, distribute
from luminal.distribute.layout import Layout, of_spec
from luminal.distribute.mesh import Mesh, Spec
from luminal.distribute.parts import assembled, part, shape_of_part, unpadded
from luminal.hlir.attributes import GatherAttrs, MarkAttrs, ScatterAttrs, ViewAttrs
from luminal.hlir.graph import Graph
from luminal.hlir.prune import pruned
from luminal.hlir.sharding import dims_at
from luminal.hlir.substitute import all_nodes
from luminal.hlir.verify import verify
from luminal.memory.parameter import Parameter
from luminal.memory.state import Assignable, State
from luminal.shape.expression import TRUE, Expression, const

Array = np.ndarray[Any, Any]


class Parts:
    """What holds the parts of Parameters and States on the ranks of the oracle."""

    def __init__(self) -> None:
        self.of: dict[Assignable, tuple[Assignable, Layout]] = {}

    def __call__(self, owner: Assignable, layout: Layout) -> Assignable:
        if not any(layout):
            return owner
        if owner not in self.of:
            shape = shape_of_part(owner.shape, layout)
            kind = Parameter if isinstance(owner, Parameter) else State
            self.of[owner] = kind(shape, owner.dtype, name=owner.name), layout
        return self.of[owner][0]


def spread(
    graph: Graph, mesh: Mesh, inputs: Mapping[str, Spec] | None, states: Mapping[Assignable, Spec],
    order: str = "tree",
) -> tuple[Distributed, Parts]:  # fmt: skip
    """The graph of a rank, verified, and what holds the parts."""
    parts = Parts()
    out = distribute(pruned(graph, (MarkAttrs,)), mesh, inputs, states, parts, order)
    verify(out.graph)
    return out, parts


def on_ranks(
    graph: Graph,
    mesh: Mesh,
    inputs: Mapping[str, Spec] | None,
    states: Mapping[Assignable, Spec],
    arrays: Mapping[str, Array],
    order: str = "tree",
    dims: Mapping[str, int] | None = None,
) -> tuple[dict[str, Array], dict[Assignable, Array], Distributed]:
    """Every output and assigned State of all ranks together, and the graph that they ran."""
    out, parts = spread(graph, mesh, inputs, states, order)
    at = [mesh.coordinates(rank) for rank in range(mesh.size)]
    own_dims = {name: n // out.dims.get(name, 1) for name, n in (dims or {}).items()}
    given = {
        name: [poisoned(array, out.inputs[name], c, own_dims) for c in at]
        for name, array in arrays.items()
        if name in out.inputs
    }
    held = {
        own: tuple(poisoned(owner.numpy(), layout, c, {}) for c in at)
        for owner, (own, layout) in parts.of.items()
    }
    check_reads(out.graph, mesh, own_dims)
    results = interpret_ranks(out.graph, mesh, given, own_dims, held)
    outputs = {}
    for name, own in results.outputs.items():
        layout = out.outputs[name]
        shape = [int(n.evaluate(own_dims)) for n in out.output_shapes[name]]
        outputs[name] = _together(own, shape, layout, mesh, own_dims)
    owners = {own: (owner, layout) for owner, (own, layout) in parts.of.items()}
    new = {}
    for own_state, values in results.states.items():
        owner, layout = owners.get(own_state, (own_state, ((),) * len(own_state.shape)))
        new[owner] = _together(values, owner.shape, layout, mesh, own_dims)
    return outputs, new, out


def check_reads(graph: Graph, mesh: Mesh, dims: Mapping[str, int]) -> None:
    """Raises AssertionError for a map of a rank's graph that leads outside of its source, where the
    reference reads 0 and a kernel whatever lies there.
    """
    for node in all_nodes(graph):
        match node.attrs:
            case ViewAttrs(view=view):
                shape, entries, domain = view.shape, view.map, view.domain
            case GatherAttrs(shape=shape, map=entries):
                domain = TRUE
            case ScatterAttrs(map=entries):
                shape, domain = node.args[1].shape, TRUE
            case _:
                continue
        extents = [int(n.evaluate(dims)) for n in shape]
        grid = {f"i{k}": at for k, at in enumerate(np.indices(extents, sparse=True))}
        for rank in range(mesh.size):
            env: dict[str, Any] = {**dims, **dims_at(mesh.coordinates(rank)), **grid}
            inside = np.broadcast_to(np.asarray(domain.evaluate(env), np.bool_), extents)
            for entry, extent in zip(entries, node.args[0].shape, strict=True):
                if isinstance(entry, Expression):
                    at = np.broadcast_to(np.asarray(entry.evaluate(env)), extents)[inside]
                    n = int(extent.evaluate(env))
                    assert ((at >= 0) & (at < n)).all(), f"{node.op.name} reads {entry} of {n}"


def poisoned(array: Array, layout: Layout, at: Mapping[str, int], dims: Mapping[str, int]) -> Array:
    """The part of an array with pads that show wherever they leak: NaN, or 113."""
    out = part(array, layout, at, dims)
    is_real = np.zeros(out.shape, np.bool_)
    unpadded(is_real, array.shape, layout, at, dims)[...] = True
    is_bool, is_float = out.dtype == np.bool_, dtype_of(out).is_float
    out[~is_real] = True if is_bool else np.nan if is_float else 113
    return out


def _together(own: Any, shape: Any, layout: Layout, mesh: Mesh, dims: Mapping[str, int]) -> Array:
    """The whole of the ranks' parts; ranks that hold the same part must hold the same bits."""
    out = assembled(own, shape, layout, mesh, dims)
    for rank, values in enumerate(own):
        at = mesh.coordinates(rank)
        again = unpadded(part(out, layout, at, dims), shape, layout, at, dims)
        here = unpadded(values, shape, layout, at, dims)
        assert again.tobytes() == here.tobytes(), "ranks differ"
    return out


def on_one(graph: Graph, arrays: Mapping[str, Array]) -> tuple[dict[str, Array], Any]:
    """Every output and assigned State of the graph as it is."""
    results = interpret(pruned(graph), arrays, {}, Arrays())
    return results.outputs, results.states


def layout_of(spec: Spec, shape: tuple[int, ...], mesh: Mesh) -> Layout:
    """The layout of a spec for a literal shape."""
    return of_spec(spec, tuple(map(const, shape)), mesh, "a test")

"""The oracle of programs for many ranks: all of them in one process, in lockstep, on NumPy.

A value is one array for each rank, and each operation is done on every rank before the next one is.
So a collective has all operands at hand, and what it means is a line of NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.backends.reference.interpreter import Evaluation, NodeOrder, Results
from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.distribute.mesh import Mesh
from luminal.hlir.attributes import CollectiveAttrs, InputAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Assign, Graph
from luminal.hlir.monoid import REDUCTIONS
from luminal.hlir.ops import OPS, Node
from luminal.hlir.semantics import Array, Dims
from luminal.hlir.sharding import dims_at
from luminal.memory.state import Assignable

Parts = tuple[Array, ...]
"""A value: the array of each rank, in their order."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The domain whose values are one array for each rank of a mesh."""

    mesh: Mesh

    def lift(self, array: Array) -> Parts:
        """The value of a leaf that all ranks have."""
        return (array,) * self.mesh.size

    def apply(self, node: Node, dims: Dims, args: Sequence[Parts]) -> tuple[Parts, ...]:
        """The results of a node on every rank."""
        if isinstance(node.attrs, CollectiveAttrs):
            return (collective(node.attrs, self.mesh, args[0]),)
        assert node.op.evaluate is not None, node
        results = []
        for rank in range(self.mesh.size):
            rank_dims = {**dims, **dims_at(self.mesh.coordinates(rank))}
            results.append(node.op.evaluate(node.attrs, rank_dims, [arg[rank] for arg in args]))
        return tuple(zip(*results, strict=True))

    def slice(self, x: Parts, position: int) -> Parts:
        """`x[position]` along the leading axis, on every rank."""
        return tuple(np.asarray(part[position]) for part in x)

    def stack(self, slices: Sequence[Parts], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Parts:
        """The values whose slices these are, on every rank."""
        if not slices:
            return self.lift(np.zeros(shape, dtype))
        return tuple(np.stack(parts) for parts in zip(*slices, strict=True))


def collective(attrs: CollectiveAttrs, mesh: Mesh, x: Parts) -> Parts:
    """What a collective gives each rank; where an engine may add in any order, in a tree's."""
    out: list[Array] = [np.zeros(())] * mesh.size
    for group in mesh.groups(attrs.axis):
        assert len(group) == attrs.ranks, (group, attrs)
        stacked = np.stack([x[rank] for rank in group])
        reduced = None
        if attrs.reduction:
            reduced = _tree(attrs.reduction, [*stacked])
        for k, rank in enumerate(group):
            match attrs.kind:
                case "all_gather":
                    out[rank] = np.concatenate([*stacked])
                case "all_to_all":
                    pieces = [np.split(operand, len(group))[k] for operand in stacked]
                    out[rank] = np.concatenate(pieces)
                case "all_reduce":
                    assert reduced is not None
                    out[rank] = reduced
                case "reduce_scatter":
                    assert reduced is not None
                    out[rank] = np.split(reduced, len(group))[k]
                case "permute":
                    sources = [source for source, target in attrs.pairs if target == k]
                    out[rank] = stacked[sources[0]] if sources else np.zeros_like(x[rank])
    return tuple(out)


def _tree(reduction: str, level: list[Array]) -> Array:
    combine = OPS[REDUCTIONS[reduction].combine].evaluate
    assert combine is not None
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        joined = [combine(None, {}, pair)[0] for pair in pairs]
        level = joined + level[len(joined) * 2 :]
    return level[0]


@dataclass(slots=True)
class _Run(Evaluation[Parts]):
    """An evaluation whose leaves have a part for each rank."""

    parts: Mapping[Assignable, Parts] | None = None
    given: Mapping[str, Sequence[Array]] | None = None

    def node(self, node: Node, args: Sequence[Parts]) -> tuple[Parts, ...]:
        match node.attrs:
            case InputAttrs(name=name):
                assert self.given is not None
                if name not in self.given:
                    raise InputError(f"input {name!r}: {node.types[0]} is not given")
                return (tuple(self.given[name]),)
            case WeightAttrs(parameter=owner) | StateAttrs(state=owner):
                if self.parts is not None and owner in self.parts:
                    return (self.parts[owner],)
        return Evaluation.node(self, node, args)


def interpret_ranks(
    graph: Graph,
    mesh: Mesh,
    inputs: Mapping[str, Sequence[Array]],
    dims: Dims,
    parts: Mapping[Assignable, Parts] | None = None,
) -> Results[Parts]:
    """Runs a rank's graph on all ranks of a mesh: each output and State by rank.

    `inputs`: the array of each rank. `parts`: the values of Parameters and States by rank, where
    ranks differ in them. No State changes.
    """
    run = _Run(Ranks(mesh), {}, dims, parts=parts, given=inputs)
    values = run.block(NodeOrder.of(graph.roots), {})
    outputs: dict[str, Parts] = {}
    for sink, value in zip(graph.sinks, values, strict=True):
        if isinstance(sink, Assign):
            run.states[sink.state] = value
        else:
            outputs[sink.name] = value
    return Results(outputs, run.states)

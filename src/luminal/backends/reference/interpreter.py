"""Runs an HLIR graph node by node, over arrays or over any other domain of values.

The walk is the same whatever the values are (`Domain`): plain arrays here, arrays with error bounds
in `bounds`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.hlir.attributes import InputAttrs, LoopAttrs, StateAttrs, WeightAttrs
from luminal.hlir.graph import Assign, Graph, Output, topological
from luminal.hlir.ops import Node, Value
from luminal.hlir.semantics import Array, Dims, extents
from luminal.memory.state import Assignable

T = TypeVar("T")
Trace = Callable[[Node, tuple[Any, ...], float], None]


class Domain(Protocol[T]):
    """What the values of a run are and how ops act on them."""

    def lift(self, array: Array) -> T:
        """The value of a leaf."""

    def apply(self, node: Node, dims: Dims, args: Sequence[T]) -> tuple[T, ...]:
        """The results of any node but a leaf given from outside or a Loop."""

    def slice(self, x: T, position: int) -> T:
        """`x[position]` along the leading axis."""

    def stack(self, slices: Sequence[T], shape: tuple[int, ...], dtype: np.dtype[Any]) -> T:
        """The value of this shape whose slices along the leading axis are `slices`."""


class Results(NamedTuple, Generic[T]):
    """Every Output by name, hidden ones included, and the new value of every assigned State."""

    outputs: dict[str, T]
    states: dict[Assignable, T]


class Arrays:
    """The plain domain: a value is an ndarray."""

    def lift(self, array: Array) -> Array:
        return array

    def apply(self, node: Node, dims: Dims, args: Sequence[Array]) -> tuple[Array, ...]:
        assert node.op.evaluate is not None, node
        return node.op.evaluate(node.attrs, dims, args)

    def slice(self, x: Array, position: int) -> Array:
        return np.asarray(x[position])

    def stack(self, slices: Sequence[Array], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.stack(slices) if slices else np.zeros(shape, dtype)


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array],
    dims: Dims | None = None,
    trace: Trace | None = None,
    domain: Arrays | None = None,
) -> dict[str, Array]:
    """Every Output of `graph` by name, hidden ones included; its States then hold new values.

    `dims`: the value of every dim by name. `trace(node, arrays, seconds)` is called after each
    node, in Loop bodies once per trip. Raises InputError for a missing input.
    """
    results = interpret(graph, inputs, dims or {}, domain or Arrays(), trace)
    outputs = {name: np.array(array, order="C") for name, array in results.outputs.items()}
    for state, array in results.states.items():
        state.set(array)
    return outputs


def interpret(
    graph: Graph,
    inputs: Mapping[str, Array],
    dims: Dims,
    domain: Domain[T],
    trace: Trace | None = None,
) -> Results[T]:
    """Runs `graph` over `domain`. No State changes: their new values are in the results."""
    run = Evaluation(domain, inputs, dims, trace)
    values = run.block(NodeOrder.of(graph.roots), {})
    outputs: dict[str, T] = {}
    for sink, value in zip(graph.sinks, values, strict=True):
        if isinstance(sink, Output):
            outputs[sink.name] = value
        elif isinstance(sink, Assign):
            run.states[sink.state] = value
    return Results(outputs, run.states)


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """What to compute for `roots`: nodes in order, and how often each is read."""

    roots: tuple[Value, ...]
    order: list[Node]
    uses: Counter[Node]

    @classmethod
    def of(cls, roots: tuple[Value, ...]) -> NodeOrder:
        order = topological(roots)
        uses = Counter(arg.node for node in order for arg in node.args)
        uses.update(root.node for root in roots)
        return cls(roots, order, uses)


@dataclass(slots=True)
class Evaluation(Generic[T]):
    """One evaluation: what it was given, and the new values of States met so far."""

    domain: Domain[T]
    inputs: Mapping[str, Array]
    dims: Dims
    trace: Trace | None = None
    states: dict[Assignable, T] = field(default_factory=dict)

    def block(self, block: NodeOrder, bound: Mapping[Node, tuple[T, ...]]) -> list[T]:
        """The values of the block's roots, where `bound` gives its arguments."""
        values = dict(bound)
        # Reference counting by hand: a value is dropped with its last reader, or a model evaluated
        # node by node would hold every activation at once.
        left = block.uses.copy()
        for node in block.order:
            if node in values:
                continue
            start = time.perf_counter()
            values[node] = self.node(node, [values[arg.node][arg.index] for arg in node.args])
            if self.trace is not None:
                self.trace(node, values[node], time.perf_counter() - start)
            for arg in node.args:
                left[arg.node] -= 1
                if left[arg.node] == 0:
                    del values[arg.node]
        return [values[root.node][root.index] for root in block.roots]

    def node(self, node: Node, args: Sequence[T]) -> tuple[T, ...]:
        """The results of one node whose operands have these values."""
        match node.attrs:
            case InputAttrs(name=name):
                if name not in self.inputs:
                    raise InputError(f"input {name!r}: {node.types[0]} is not given; pass an array")
                return (self.domain.lift(np.asarray(self.inputs[name])),)
            case WeightAttrs(parameter=parameter):
                return (self.domain.lift(parameter.memory),)
            case StateAttrs(state=state):
                return (self.domain.lift(state.memory_now()),)
            case LoopAttrs():
                return self._loop(node, args)
        return self.domain.apply(node, self.dims, args)

    def _loop(self, node: Node, args: Sequence[T]) -> tuple[T, ...]:
        attrs: LoopAttrs = node.attrs
        carried, streams, invariants = attrs.split(args)
        block = NodeOrder.of(attrs.body.results)
        ys: list[list[T]] = [[] for _ in attrs.assigned]
        for trip in range(int(attrs.trips.evaluate(self.dims))):
            slices = [
                leaves[trip] if count else self.domain.slice(leaves[0], trip)
                for count, leaves in zip(attrs.streams, streams, strict=True)
            ]
            arguments = zip(attrs.body.arguments, (*carried, *slices, *invariants), strict=True)
            results = self.block(block, {argument: (value,) for argument, value in arguments})
            carried = results[: attrs.carried]
            for y, value in zip(ys, results[attrs.carried :], strict=True):
                y.append(value)
        for y, states in zip(ys, attrs.assigned, strict=True):
            self.states.update(zip(states or (), y if states else (), strict=True))
        types = node.types[attrs.carried :]
        return (
            *carried,
            *(
                self.domain.stack(y, extents(type_.shape, self.dims), type_.dtype.numpy)
                for y, type_ in zip(ys, types, strict=True)
            ),
        )

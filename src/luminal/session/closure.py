"""The graph of a function under jit, and the inputs of other graphs that the function uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from luminal.base.errors import GraphError, InputError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import describe
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import InputAttrs, WeightAttrs
from luminal.hlir.graph import topological
from luminal.hlir.ops import Node, Value
from luminal.runtime.arrays import Array
from luminal.session.graph import Graph


class Closed(NamedTuple):
    """An input of another graph that a function under jit uses."""

    graph: Recorder
    name: str


def values_of(closed: Mapping[str, Closed]) -> dict[str, Array]:
    """The arrays that the inputs hold now, by the names that stand for them; InputError for an
    input without one.
    """
    arrays = {}
    for name, (graph, theirs) in closed.items():
        if theirs not in graph.values:
            wanted = describe(graph.wrap(graph.leaves[theirs]))
            raise InputError(
                f"jit: the function uses {wanted} of {graph.name}, which has no value yet; "
                "call set(array) on it, or make it an argument"
            )
        arrays[name] = graph.values[theirs]
    return arrays


class Recording(Graph):
    """The graph of a function under jit: what is recorded has no value yet."""

    depth = 1  # it lies inside of the graphs whose values the function uses
    recorded_once = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.done = False  # the function has returned
        self.closed: dict[str, Closed] = {}  # by the input that stands for it
        self._copies: dict[Node, Node] = {}

    def bring(self, x: Tensor) -> Value:
        """The value of `x` here; what other graphs record is recorded here again.

        Their inputs become inputs, whose values each call looks up. Raises GraphError for what
        another function under jit recorded.
        """
        for graph in (self, x.graph):
            if isinstance(graph, Recording) and graph.done:
                raise graph.left()
        if x.graph is self or x.graph.depth:
            return super().bring(x)
        # Recorded again rather than linked: a program stands for all calls, so what it closes over
        # must be inputs of it.
        for node in topological([x.value]):
            if node not in self._copies:
                self._copies[node] = self._copied(x.graph, node)
        return Value(self._copies[x.value.node], x.value.index)

    def _copied(self, graph: Recorder, node: Node) -> Node:
        attrs = node.attrs
        # Inputs of others are looked up at each call; Parameters are the same objects in any graph.
        if isinstance(attrs, InputAttrs):
            name = self._free_name(attrs.name)
            self.closed[name] = Closed(graph, attrs.name)
            return self.tensor(attrs.shape, attrs.dtype, name).value.node
        if isinstance(attrs, WeightAttrs):
            return self.weight_of(attrs.parameter, attrs.name).value.node
        args = [Value(self._copies[value.node], value.index) for value in node.args]
        return self.builder.make(node.op.name, args, attrs)

    def result(self, value: Value) -> Array:
        """A constant's elements; raises GraphError for all that is computed or given."""
        if self.done:
            raise self.left()
        elements = self.known(value)
        if elements is None:
            raise GraphError(
                f"{describe(self.wrap(value))} has no value while jit records {self.name}, which "
                "it does once for all values; use lm.where for choices, return what you want to "
                "read, or name in static=(...) what decides the program"
            )
        return elements

    def left(self) -> GraphError:
        """The error for a Tensor that is used after the function has returned."""
        return GraphError(
            f"a Tensor that jit recorded in {self.name} is used after {self.name} has returned; "
            "return it from the function, and use what a call gives"
        )

"""Which values of a graph as it was recorded the nodes of its rolled form compute.

A rolled graph is recorded again, iteration by iteration, by a Builder that knows the nodes of the
one before it: what computes the same from the same is the same node there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.hlir.attributes import Body, LoopAttrs, ViewAttrs
from luminal.hlir.graph import Builder, Graph, copied, topological
from luminal.hlir.ops import Node, Value
from luminal.shape.expression import const
from luminal.shape.view import View, identity, made
from luminal.viz.values import ByOrigin, Ids, Values

MOST = 400_000  # nodes that are recorded again: more are related by their origins

Env = dict[Value, Value]


def values_of(rolled: Graph, values: Values, by_origin: ByOrigin) -> Mapping[Node, Ids]:
    """For each node of the rolled graph and of its bodies, the values that it computes."""
    unrolling = _Unrolling(values)
    unrolling.walk(rolled.nodes(), {})
    of_nodes: dict[Node, Ids] = {}
    for node in Values(rolled).nodes:
        ids = unrolling.numbers_of.get(node)
        of_nodes[node] = tuple(sorted(ids)) if ids else by_origin(node.recorded, node.op.name)
    return of_nodes


class _Unrolling:
    def __init__(self, values: Values) -> None:
        self.numbers = values.numbers
        self.builder = Builder()
        arguments = {
            node
            for loop in values.nodes
            if isinstance(loop.attrs, LoopAttrs)
            for node in loop.attrs.body.arguments
        }
        for node in values.nodes:
            if node not in arguments:  # their names are those of inputs, and no part of them
                self.builder.keep(node)
        self.numbers_of: dict[Node, dict[int, None]] = {}
        self.handed: dict[Value, list[Value]] = {}  # what Loops give of each iteration
        self.left = MOST

    def walk(self, nodes: Sequence[Node], env: Env) -> None:
        """Records nodes whose operands are in `env`, or themselves."""
        self.left -= len(nodes)
        for node in nodes:
            if node.value in env:
                continue
            args = [env.get(arg, arg) for arg in node.args]
            is_loop = isinstance(node.attrs, LoopAttrs)
            results = self._loop(node, args) if is_loop else self._again(node, args)
            self.note(node, results)
            env.update((Value(node, k), value) for k, value in enumerate(results))

    def note(self, node: Node, results: Sequence[Value]) -> None:
        """A node computes these values."""
        numbers = (self.numbers.get(value.node) for value in results)
        self.numbers_of.setdefault(node, {}).update((n, None) for n in numbers if n is not None)

    def _again(self, node: Node, args: Sequence[Value]) -> Sequence[Value]:
        """The operation on other operands."""
        if isinstance(node.attrs, ViewAttrs):
            return [self._viewed(args[0], node.attrs.view)]
        return copied(self.builder, node, args)

    def _viewed(self, whole: Value, view: View) -> Value:
        """A view; of what a Loop hands on, that of the iteration which it shows alone."""
        value = self.builder.view(whole, view)
        attrs = value.node.attrs
        if not isinstance(attrs, ViewAttrs) or value.node.args[0] not in self.handed:
            return value
        results, seen = self.handed[value.node.args[0]], attrs.view
        if not seen.map[0].is_const or seen.map[0].value >= len(results):
            return value
        inner = View(seen.shape, seen.map[1:], seen.domain)
        return self.builder.view(results[seen.map[0].value], inner)

    def _loop(self, loop: Node, args: Sequence[Value]) -> Sequence[Value]:
        """What a Loop gives, as the graph before it has it."""
        attrs: LoopAttrs = loop.attrs
        twin = self._twin(loop, args)
        if twin is not None:
            self._same_body(twin.attrs.body, attrs.body)
            return [Value(twin, k) for k in range(len(loop.types))]
        inner = topological(attrs.body.results)
        if not attrs.trips.is_const or attrs.trips.value * len(inner) > self.left:
            return [Value(loop, k) for k in range(len(loop.types))]
        carried, streams, invariants = attrs.split(args)
        arguments = [argument.value for argument in attrs.body.arguments]
        for t in range(attrs.trips.value):
            slices = [
                stream[t] if leaves else self._slice(stream[0], t)
                for stream, leaves in zip(streams, attrs.streams, strict=True)
            ]
            env = dict(zip(arguments, [*carried, *slices, *invariants], strict=True))
            for argument, value in env.items():
                self.note(argument.node, [value])
            self.walk(inner, env)
            results = [env.get(result, result) for result in attrs.body.results]
            carried = results[: attrs.carried]
            for k, value in enumerate(results[attrs.carried :], attrs.carried):
                self.handed.setdefault(Value(loop, k), []).append(value)
                self.note(loop, [value])
            self.note(loop, carried)
        ys = range(attrs.carried, len(loop.types))
        return [*carried, *(Value(loop, k) for k in ys)]

    def _slice(self, whole: Value, t: int) -> Value:
        """What iteration t gets of a tensor with one slice for each."""
        if whole in self.handed:
            return self.handed[whole][t]
        shape = whole.type.shape[1:]
        return self._viewed(whole, made(whole.type.shape, shape, (const(t), *identity(shape).map)))

    def _twin(self, loop: Node, args: Sequence[Value]) -> Node | None:
        """The recorded Loop that this one is, or that it is with a body that was rolled."""
        if loop in self.numbers:
            return loop
        mine: LoopAttrs = loop.attrs
        for node in self.numbers:
            theirs = node.attrs
            if (
                isinstance(theirs, LoopAttrs)
                and node.args == tuple(args)
                and theirs.trips == mine.trips
                and theirs.body.arguments == mine.body.arguments
            ):
                return node
        return None

    def _same_body(self, recorded: Body, rolled: Body) -> None:
        """Relates the nodes of one Loop's body and of the same one rolled."""
        for argument in rolled.arguments:
            self.note(argument, [argument.value])
        arguments = [argument.value for argument in rolled.arguments]
        self.walk(topological(rolled.results), dict(zip(arguments, arguments, strict=True)))

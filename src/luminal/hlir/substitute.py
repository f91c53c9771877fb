"""The dims of a graph: which it uses, and the same graph with some of them replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from luminal.hlir.attributes import (
    Body,
    CustomAttrs,
    GatherAttrs,
    InputAttrs,
    IotaAttrs,
    LoopAttrs,
    ScatterAttrs,
    ViewAttrs,
)
from luminal.hlir.graph import Assign, Builder, ByOp, Graph, Output, Sink, by_op, topological
from luminal.hlir.ops import Node, Value
from luminal.shape.expression import Expression, Symbol, axis
from luminal.shape.view import View

Rewrite = Callable[[Expression], Expression]


_HOLDING = ("Input", "Iota", "Gather", "Scatter", "Loop", "Custom")
"""Ops whose attributes hold Expressions, but for the most frequent one: View."""


def blocks(graph: Graph) -> Iterator[ByOp]:
    """The nodes of the graph, then those of its Loops' bodies, each body once."""
    waiting = [graph.by_op()]
    entered: set[Body] = set()
    while waiting:
        block = waiting.pop()
        yield block
        for node in block.get("Loop", ()):
            if node.attrs.body not in entered:
                entered.add(node.attrs.body)
                waiting.append(by_op(topological(node.attrs.body.results)))


def all_nodes(graph: Graph) -> Iterator[Node]:
    """Every node of the graph and of its Loops' bodies, each body once."""
    waiting: list[Sequence[Node]] = [graph.nodes()]
    entered: set[Body] = set()
    while waiting:
        for node in waiting.pop():
            yield node
            if isinstance(node.attrs, LoopAttrs) and node.attrs.body not in entered:
                entered.add(node.attrs.body)
                waiting.append(topological(node.attrs.body.results))


def used_dims(graph: Graph) -> frozenset[Symbol]:
    """The dims that the values, or the requirements, of the graph depend on.

    Shapes come from attributes alone: all other ops, and States, have no extents of their own.
    """
    met: set[Expression] = set(graph.requirements)

    def collect(expression: Expression) -> Expression:
        met.add(expression)
        return expression

    for block in blocks(graph):
        views = {id(node.attrs.view): node.attrs.view for node in block.get("View", ())}
        for view in views.values():  # most nodes share theirs
            met.update(view.shape, view.map, (view.domain,))
        for name in _HOLDING:
            for node in block.get(name, ()):
                rewrite_attrs(node.attrs, collect)
    found = frozenset[Symbol]().union(*(expression.symbols() for expression in met))
    return frozenset(symbol for symbol in found if symbol.extent is None)


def substitute_dims(graph: Graph, dims: Mapping[Symbol, Expression]) -> Graph:
    """`graph` with each of `dims` replaced. Requirements that then always hold are dropped."""
    rewrite = _rewriter(dims)
    values = _Rebuild(rewrite).values(graph.roots, {})
    sinks: list[Sink] = []
    for sink, value in zip(graph.sinks, values, strict=True):
        if isinstance(sink, Output):
            sinks.append(Output(value, sink.name, sink.hidden))
        else:
            sinks.append(Assign(sink.state, value))
    left = (rewrite(dim) for dim in graph.dims)
    conditions = (rewrite(condition) for condition in graph.requirements)
    return Graph(
        tuple(sinks),
        tuple(dim for dim in left if isinstance(dim, Symbol)),
        tuple(condition for condition in conditions if not condition.is_const),
    )


def rewrite_attrs(attrs: Any, rewrite: Rewrite) -> Any:
    """`attrs` with every Expression rewritten; of a Loop the trips, not the body."""

    def each(entries: Sequence[Expression | int]) -> tuple[Any, ...]:
        return tuple(entry if isinstance(entry, int) else rewrite(entry) for entry in entries)

    match attrs:
        case InputAttrs(shape=shape):
            return attrs._replace(shape=each(shape))
        case IotaAttrs(expr=expr, shape=shape):
            return attrs._replace(expr=rewrite(expr), shape=each(shape))
        case GatherAttrs(shape=shape, map=entries):
            return GatherAttrs(each(shape), each(entries))
        case ScatterAttrs(map=entries):
            return attrs._replace(map=each(entries))
        case ViewAttrs(view=view):
            return ViewAttrs(View(each(view.shape), each(view.map), rewrite(view.domain)))
        case LoopAttrs(trips=trips):
            return attrs._replace(trips=rewrite(trips))
        case CustomAttrs(kernel=kernel, types=types, chunks=chunks, flops=flops):
            made = tuple((each(shape), dtype) for shape, dtype in types)
            return CustomAttrs(kernel, made, rewrite(chunks), rewrite(flops))
    return attrs


def _rewriter(dims: Mapping[Symbol, Expression]) -> Rewrite:
    """Replaces dims in Expressions, and axes whose extents change."""
    known: dict[Symbol, Expression] = dict(dims)

    def replacement(symbol: Symbol) -> Expression:
        if symbol not in known:
            extent = None if symbol.extent is None else rewrite(symbol.extent)
            same = extent is symbol.extent
            known[symbol] = symbol if same or extent is None else axis(symbol.name, extent)
        return known[symbol]

    def rewrite(expression: Expression) -> Expression:
        return expression.substitute({s: replacement(s) for s in expression.symbols()})

    return rewrite


class _Rebuild:
    """Makes nodes anew; Loops that share a body go on sharing it."""

    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        self._bodies: dict[Body, Body] = {}

    def values(self, roots: Sequence[Value], known: dict[Node, Node]) -> list[Value]:
        builder = Builder()
        for node in topological(roots):
            if node not in known:
                args = [Value(known[arg.node], arg.index) for arg in node.args]
                known[node] = builder.make(node.op.name, args, self._attrs(node.attrs))
        return [Value(known[root.node], root.index) for root in roots]

    def _attrs(self, attrs: Any) -> Any:
        made = rewrite_attrs(attrs, self._rewrite)
        if isinstance(made, LoopAttrs):
            return made._replace(body=self._body(made.body))
        return made

    def _body(self, body: Body) -> Body:
        if body not in self._bodies:
            builder = Builder()
            known = {
                node: builder.make(node.op.name, (), self._attrs(node.attrs))
                for node in body.arguments
            }
            results = self.values(body.results, dict(known))
            self._bodies[body] = Body(tuple(known.values()), tuple(results))
        return self._bodies[body]

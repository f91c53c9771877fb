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
    # Most nodes of a model share views and shapes, so Expressions are collected once, by identity.
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
    symbols = frozenset[Symbol]().union(*(expression.symbols() for expression in met))
    return frozenset(symbol for symbol in symbols if symbol.extent is None)


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
    """The attributes with every Expression rewritten; in a Loop's, the trips but not the body."""

    def rewritten(entries: Sequence[Expression | int]) -> tuple[Any, ...]:
        return tuple(entry if isinstance(entry, int) else rewrite(entry) for entry in entries)

    match attrs:
        case InputAttrs(shape=shape):
            return attrs._replace(shape=rewritten(shape))
        case IotaAttrs(expr=expr, shape=shape):
            return attrs._replace(expr=rewrite(expr), shape=rewritten(shape))
        case GatherAttrs(shape=shape, map=entries):
            return GatherAttrs(rewritten(shape), rewritten(entries))
        case ScatterAttrs(map=entries):
            return attrs._replace(map=rewritten(entries))
        case ViewAttrs(view=view):
            return ViewAttrs(View(rewritten(view.shape), rewritten(view.map), rewrite(view.domain)))
        case LoopAttrs(trips=trips):
            return attrs._replace(trips=rewrite(trips))
        case CustomAttrs(kernel=kernel, types=types, chunks=chunks, flops=flops):
            new_types = tuple((rewritten(shape), dtype) for shape, dtype in types)
            return CustomAttrs(kernel, new_types, rewrite(chunks), rewrite(flops))
    return attrs


def _rewriter(dims: Mapping[Symbol, Expression]) -> Rewrite:
    """A function that replaces dims in Expressions, and axes whose extents change."""
    replacements: dict[Symbol, Expression] = dict(dims)

    def replacement(symbol: Symbol) -> Expression:
        if symbol not in replacements:
            extent = None if symbol.extent is None else rewrite(symbol.extent)
            # An axis carries its extent, which may hold a dim: then it becomes another axis of the
            # same name.
            same = extent is symbol.extent
            replacements[symbol] = symbol if same or extent is None else axis(symbol.name, extent)
        return replacements[symbol]

    def rewrite(expression: Expression) -> Expression:
        return expression.substitute({s: replacement(s) for s in expression.symbols()})

    return rewrite


class _Rebuild:
    """Makes nodes anew; Loops that share a body go on sharing it."""

    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite = rewrite
        self._bodies: dict[Body, Body] = {}

    def values(self, roots: Sequence[Value], rebuilt: dict[Node, Node]) -> list[Value]:
        builder = Builder()
        for node in topological(roots):
            if node not in rebuilt:
                args = [Value(rebuilt[arg.node], arg.index) for arg in node.args]
                rebuilt[node] = builder.make(node.op.name, args, self._attrs(node.attrs), node)
        return [Value(rebuilt[root.node], root.index) for root in roots]

    def _attrs(self, attrs: Any) -> Any:
        new_attrs = rewrite_attrs(attrs, self._rewrite)
        if isinstance(new_attrs, LoopAttrs):
            return new_attrs._replace(body=self._body(new_attrs.body))
        return new_attrs

    def _body(self, body: Body) -> Body:
        if body not in self._bodies:
            builder = Builder()
            arguments = {
                node: builder.make(node.op.name, (), self._attrs(node.attrs), node)
                for node in body.arguments
            }
            results = self.values(body.results, dict(arguments))
            self._bodies[body] = Body(tuple(arguments.values()), tuple(results))
        return self._bodies[body]

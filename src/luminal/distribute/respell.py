"""Sums over the keys of a ring, spelled so that they need the end of no other reduction.

    Sum(s, e / l * v)                 ->  Sum(s, e * v) / l             l the same for all s
    Sum(s, w * Sum(d, g * v))         ->  Sum(d, g * Sum(s, w * v))     where that sum is there, too

The first is what a softmax divides by, so that one pass gives a maximum, its sum and the weighted
sum; the second is what the gradient of a softmax takes from its rows, which the forward pass knows
(Dao et al., arXiv 2205.14135). Each saves a way around the ring.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace

import numpy as np

from luminal.distribute.edges import Edge, edge_of
from luminal.distribute.rings import literal
from luminal.hlir.graph import Builder, Graph, copied
from luminal.hlir.ops import Node, Value
from luminal.shape.expression import TRUE, Expression
from luminal.shape.view import index, made, permute


def respelled(graph: Graph, sums: Set[Node]) -> Graph:
    """The graph with these sums over keys spelled so."""
    # What a sum is found to be made of is spelled afterwards, or it would not be found.
    return _replaced(_replaced(graph, sums, _by_rows), sums, _divided_last)


Now = Callable[[Value], Value]
Spell = Callable[[Builder, Node, set[Node], Now], Value | None]


def _replaced(graph: Graph, sums: Set[Node], spell: Spell) -> Graph:
    """The graph with other values for these sums, as far as `spell` has some."""
    nodes, values, builder = graph.nodes(), dict[Value, Value](), Builder()
    there = set(nodes)

    def now(value: Value) -> Value:
        return values.get(value, value)

    for node in nodes:
        builder.keep(node)
    for node in nodes:
        if node in sums:
            new = spell(builder, node, there, now)
            if new is not None:
                values[node.value] = new
                continue
        args = [now(arg) for arg in node.args]
        if args != [*node.args]:
            for k, value in enumerate(copied(builder, node, args)):
                values[Value(node, k)] = value
    sinks = [replace(sink, value=now(sink.value)) for sink in graph.sinks]
    return Graph(tuple(sinks), graph.dims, graph.requirements)


def _divided_last(builder: Builder, node: Node, _: set[Node], now: Now) -> Value | None:
    """The sum, divided by what is the same along its axis and divides its terms."""
    axis = node.attrs.axis
    numerator, divisors = _parts(builder, now(node.args[0]))
    after = []
    for divisor in divisors:
        free = _without(builder, edge_of(divisor), axis)
        if free is None:
            numerator = builder.apply("Div", numerator, divisor)
        else:
            after.append(free)
    if not after:
        return None
    total = builder.sum(numerator, axis)
    for divisor in after:
        total = builder.apply("Div", total, divisor)
    return total


def _parts(builder: Builder, x: Value) -> tuple[Value, list[Value]]:
    """A product as one without divisions, and what it is then divided by."""
    node = x.node
    if node.op.name == "View" and node.attrs.view.domain is TRUE:
        inner, divisors = _parts(builder, node.args[0])
        view = node.attrs.view
        return builder.view(inner, view), [builder.view(d, view) for d in divisors]
    if node.op.name == "Div":
        inner, divisors = _parts(builder, node.args[0])
        return inner, [*divisors, node.args[1]]
    if node.op.name == "Select" and literal(node.args[2]) == 0:
        inner, divisors = _parts(builder, node.args[1])
        return builder.apply("Select", node.args[0], inner, node.args[2]), divisors
    if node.op.name == "Mul":
        (a, of_a), (b, of_b) = (_parts(builder, arg) for arg in node.args)
        return (x, []) if not (of_a or of_b) else (builder.apply("Mul", a, b), [*of_a, *of_b])
    return x, []


def _without(builder: Builder, edge: Edge, axis: int) -> Value | None:
    """What is read for all positions along an axis, as a value that lacks it; None where that is
    not one.
    """
    gone = index(axis, edge.shape[axis])
    entries = [entry for entry in edge.map if isinstance(entry, Expression)]
    if edge.domain is not TRUE or any(gone in entry.symbols() for entry in entries):
        return None
    shape = (*edge.shape[:axis], *edge.shape[axis + 1 :])
    where = {index(k, n): index(k - 1, n) for k, n in enumerate(edge.shape) if k > axis}
    view = made(edge.value.shape, shape, [entry.substitute(where) for entry in entries])
    return builder.view(edge.value, view)


def _by_rows(builder: Builder, node: Node, there: set[Node], now: Now) -> Value | None:
    """Sum(s, w * Sum(d, g * v)) by the sum over s that the graph has already."""
    product = node.args[0].node
    if product.op.name != "Mul":
        return None
    for inner, w in (product.args, product.args[::-1]):
        inner, weights = _scaled_instead(builder, inner, w)
        if inner.node.op.name != "Sum" or inner.node.args[0].node.op.name != "Mul":
            continue
        axis, terms = inner.node.attrs.axis, inner.node.args[0]
        along = node.attrs.axis + (node.attrs.axis >= axis)
        rows = [index(k, n) for k, n in enumerate(terms.shape) if k != axis]
        number = _where_no_nan(weights)
        wide = builder.view(number or weights, made(w.shape, terms.shape, rows))
        for g, v in (terms.node.args, terms.node.args[::-1]):
            factor = _without(builder, edge_of(now(g)), along)
            if factor is None:
                continue
            weighted = _known(builder, (wide, v), along, axis, there, now)
            if weighted is not None:
                if number is not None:
                    weighted = _without_nan(builder, weighted)
                return builder.sum(builder.apply("Mul", factor, weighted), axis - (axis > along))
    return None


def _known(
    builder: Builder,
    factors: tuple[Value, Value],
    along: int,
    last: int,
    there: set[Node],
    now: Now,
) -> Value | None:
    """The sum of a product along an axis, if the graph has it; there it may have the axis and the
    last one the other way round.
    """
    shape = factors[0].shape
    order = [*range(len(shape))]
    other = [*order]
    other[along], other[last] = last, along
    for turned, axis in ((order, along), (other, last)):
        a, b = (builder.view(x, permute(shape, turned)) for x in factors)
        for pair in ((a, b), (b, a)):
            total = builder.sum(builder.apply("Mul", *pair), axis)
            if total.node in there:
                left = [d for d in turned if d != along]
                back = sorted(range(len(left)), key=left.__getitem__)
                return builder.view(now(total), permute(total.shape, back))
    return None


def _without_nan(builder: Builder, x: Value) -> Value:
    zero = builder.constant(np.zeros((), x.dtype.numpy), x.dtype)
    is_number = builder.apply("Equal", x, x)
    return builder.apply("Select", is_number, x, builder.view(zero, made((), x.shape, [])))


def _scaled_instead(builder: Builder, x: Value, w: Value) -> tuple[Value, Value]:
    """What is done to x element by element and linearly, as dropout, done to w instead."""
    while True:
        node = x.node
        if node.op.name == "Select" and literal(node.args[2]) == 0:
            x, w = node.args[1], builder.apply("Select", node.args[0], w, node.args[2])
        elif node.op.name in ("Div", "Mul") and literal(node.args[1]) is not None:
            x, w = node.args[0], builder.apply(node.op.name, w, node.args[1])
        else:
            return x, w


def _where_no_nan(w: Value) -> Value | None:
    """The value of which this is one with 0 for NaN."""
    node = w.node
    if node.op.name != "Select" or literal(node.args[2]) != 0:
        return None
    test = node.args[0].node
    is_test = test.op.name == "Equal" and {*test.args} == {node.args[1]}
    return node.args[1] if is_test else None

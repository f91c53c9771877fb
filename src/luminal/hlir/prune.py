"""What is there for derivatives only is dropped, before a graph is compiled.

That is results of Loops that nothing reads (`scan` records what each iteration began with), the
marks of values with derivatives of their own, and those of how values lie on a mesh, which
`distribute` has read by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from luminal.hlir.attributes import Body, LoopAttrs, MarkAttrs, ShardAttrs
from luminal.hlir.graph import Builder, Graph, copied, topological
from luminal.hlir.ops import Node, Value

_Bodies = dict[tuple[Body, tuple[int, ...]], Body]
"""By the body and the numbers of the results kept beyond the carried ones."""
_Marks = tuple[type, ...]


def pruned(graph: Graph, marks: _Marks = (MarkAttrs, ShardAttrs)) -> Graph:
    """The graph without what only derivatives need; the same object if there is nothing to drop.

    `marks`: the attributes of the marks to drop.
    """
    by_op = graph.by_op()
    # Most graphs have neither, and every compile comes through here.
    marked = (*by_op.get("Detach", ()), *by_op.get("Shard", ()))
    if "Loop" not in by_op and not any(isinstance(node.attrs, marks) for node in marked):
        return graph
    values = _values(graph.roots, graph.nodes(), {}, marks)
    if not values:
        return graph
    sinks = [replace(sink, value=values.get(sink.value, sink.value)) for sink in graph.sinks]
    return replace(graph, sinks=tuple(sinks))


def _values(
    roots: Sequence[Value], nodes: Iterable[Node], bodies: _Bodies, marks: _Marks
) -> dict[Value, Value]:
    """What stands for the values of Loops with fewer results, and for all that depends on them."""
    # Nodes that change nothing are kept as they are, so that what depends on no Loop stays interned
    # and the program's key is that of the graph without derivatives.
    nodes = [*nodes]
    # What nothing in this block reads may go. An assigned y stays whoever reads it: the assignment
    # is its effect.
    read = {*roots, *(arg for node in nodes for arg in node.args)}
    values: dict[Value, Value] = {}
    builder = Builder()
    # What stays as it is must stay the same node, or what is known of it would be lost.
    for node in _unchanged(nodes, marks):
        builder.keep(node)
    for node in nodes:
        attrs, kept = node.attrs, [*range(len(node.types))]
        if isinstance(attrs, marks):
            values[node.value] = values.get(node.args[0], node.args[0])
            continue
        if isinstance(attrs, LoopAttrs):
            kept_ys = [
                k
                for k, states in enumerate(attrs.assigned)
                if states is not None or Value(node, attrs.carried + k) in read
            ]
            body = _body(attrs.body, attrs.carried, kept_ys, bodies, marks)
            if body is not attrs.body:
                assigned = tuple(attrs.assigned[k] for k in kept_ys)
                attrs = attrs._replace(body=body, assigned=assigned)
                kept = [*range(attrs.carried), *(attrs.carried + k for k in kept_ys)]
        if attrs is not node.attrs or any(arg in values for arg in node.args):
            args = [values.get(arg, arg) for arg in node.args]
            for k, value in zip(kept, copied(builder, node, args, attrs), strict=True):
                values[Value(node, k)] = value
    return values


def _unchanged(nodes: Iterable[Node], marks: _Marks) -> list[Node]:
    """The nodes that depend on no Loop and no mark: copies of others may come to be equal to
    them.
    """
    changed: set[Node] = set()
    kept = []
    for node in nodes:
        is_dropped = isinstance(node.attrs, (LoopAttrs, *marks))
        if is_dropped or any(arg.node in changed for arg in node.args):
            changed.add(node)
        else:
            kept.append(node)
    return kept


def _body(body: Body, carried: int, ys: Sequence[int], bodies: _Bodies, marks: _Marks) -> Body:
    """The body with some of its results beyond the carried ones, itself pruned; still shared."""
    # Two Loops with one body and the same results must have one body afterwards too, or what they
    # share is compiled twice.
    pruned_before = bodies.get((body, tuple(ys)))
    if pruned_before is not None:
        return pruned_before
    results = [*body.results[:carried], *(body.results[carried + k] for k in ys)]
    nodes = topological(results)
    if any(isinstance(node.attrs, (LoopAttrs, *marks)) for node in nodes):
        values = _values(results, nodes, bodies, marks)
        results = [values.get(value, value) for value in results]
    same = tuple(results) == body.results
    new_body = bodies[body, tuple(ys)] = body if same else Body(body.arguments, tuple(results))
    return new_body

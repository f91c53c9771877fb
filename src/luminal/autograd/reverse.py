"""Reverse mode: one walk over the graph from the loss back, which records the gradients into it.

Only what lies between is looked at: values that depend on a variable and that an output depends on.
Each value's gradient is the sum over its consumers, complete before it flows on, since consumers
come first in the reverse of a topological order. A value with a known derivative passes its
gradient straight to the operands of that; what lies between it and them is not entered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from functools import reduce

from luminal.autograd.checkpoint import Again
from luminal.autograd.loop import loop_rule
from luminal.autograd.rules import RULES, flat
from luminal.autograd.views import repeats
from luminal.base import garbage, lines
from luminal.base.errors import DTypeError, GraphError, ShapeError
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import describe
from luminal.frontend.tensor import Tensor
from luminal.hlir.ops import Node, Value


# There is no tape and no op for gradients: they are nodes of the same graph, so fusion, rolling and
# search see forward and backward alike, and a gradient can be differentiated again.
@garbage.held()
@lines.restored()
def gradients(
    graph: Recorder,
    outputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    variables: Sequence[Value],
) -> list[Tensor | None]:
    """For each variable the sum over outputs of cotangent times derivative; None: no path leads
    from it to an output.
    """
    order = _operands_first(graph, [y.value for y in outputs])
    active = _active(graph, order, variables)
    collected: defaultdict[Value, list[Tensor]] = defaultdict(list)
    for y, cotangent in zip(outputs, cotangents, strict=True):
        collected[y.value].append(cotangent)
    by_variable: dict[Value, Tensor | None] = dict.fromkeys(variables)
    again, start = Again(graph), len(graph.builder)
    for node in reversed(order):
        lines.gradients_of(node.recorded)
        arrived: list[Tensor | None] = []
        for k in range(len(node.types)):
            value = Value(node, k)
            parts = collected.pop(value, [])
            if len(parts) > 1 and _flows_apart(graph, node, by_variable):
                at = again.applied(node, parts)
                for part in parts:
                    _collect(node.args, RULES["View"](at, [part]), active, collected)
                parts = []
            total = reduce(Tensor.__add__, parts) if parts else None
            if total is not None and value in by_variable:
                by_variable[value] = total
            # A known derivative leads straight to its operands: what lies between is not entered.
            if total is not None and value in graph.derivatives and value in active:
                _follow(again, value, total, active, collected)
                total = None
            arrived.append(total)
        # For a limit of memory: which values are gradients, and what was recorded for them.
        graph.cotangents.update(g.value.node for g in arrived if g is not None)
        if any(g is not None for g in arrived) and any(arg in active for arg in node.args):
            at = again.applied(node, arrived)
            rule = loop_rule if node.op.name == "Loop" else RULES[node.op.name]
            _collect(node.args, rule(at, arrived), active, collected)
        graph.pulled.update(dict.fromkeys(graph.builder.since(start), node))
        start = len(graph.builder)
    return [by_variable[value] for value in variables]


def _flows_apart(graph: Recorder, node: Node, wanted: Container[Value]) -> bool:
    """Is it a view that repeats elements? The products that several matrix products sum over are
    then summed each by itself (which is a product), not added first.
    """
    if node.op.name != "View" or node.value in wanted or node.value in graph.derivatives:
        return False
    return repeats(node.attrs.view, node.args[0].shape)


def _follow(
    again: Again,
    value: Value,
    g: Tensor,
    active: set[Value],
    collected: defaultdict[Value, list[Tensor]],
) -> None:
    """Along the known derivative of a value."""
    derivative = again.graph.derivatives[value]
    y, *operands = again.tensors(value.node, (value, *derivative.operands), [g])
    _collect(derivative.operands, derivative.pull(g, y, operands), active, collected)


def _collect(
    operands: Sequence[Value],
    flowing: Sequence[Tensor | None],
    active: set[Value],
    collected: defaultdict[Value, list[Tensor]],
) -> None:
    for operand, g in zip(operands, flowing, strict=True):
        if g is not None and operand in active:
            if g.extents != operand.shape:
                g = g.sum_to_size(*operand.shape)  # of an operand that the rule broadcast
            collected[operand].append(g.cast(operand.dtype))


def _operands_first(graph: Recorder, roots: Iterable[Value]) -> list[Node]:
    """Every node below the roots, known derivatives in the place of what they pass over."""
    order: dict[Node, None] = {}
    stack = [root.node for root in roots]
    while stack:
        node = stack[-1]
        waiting = [a.node for a in _sources(graph, node) if a.node not in order]
        if node in order or not waiting:
            order.setdefault(stack.pop())
        else:
            stack += waiting[::-1]
    return [*order]


def _sources(graph: Recorder, node: Node) -> list[Value]:
    """The values that gradients of a node's results flow to."""
    derivatives = [graph.derivatives.get(Value(node, k)) for k in range(len(node.types))]
    through = [
        operand
        for derivative in derivatives
        if derivative is not None
        for operand in derivative.operands
    ]
    return through if all(derivatives) else [*through, *node.args]


def _active(graph: Recorder, order: Sequence[Node], variables: Sequence[Value]) -> set[Value]:
    """The variables, and all that depends on them smoothly. Bits of a float count as smooth, so
    that what is computed by bits is refused, not taken for a constant.
    """
    active = set(variables)
    for node in order:
        depends = RULES.get(node.op.name) is not flat and any(a in active for a in node.args)
        if node.op.name == "Cast":
            depends = depends and (node.types[0].dtype.is_float and node.args[0].dtype.is_float)
        for k, result in enumerate(node.types):
            value = Value(node, k)
            derivative = graph.derivatives.get(value)
            if derivative is not None:
                is_reached = any(operand in active for operand in derivative.operands)
            else:
                is_reached = depends and (result.dtype.is_float or node.op.group != "ordered")
            if is_reached:
                active.add(value)
    return active


def check_variable(x: Tensor, what: str) -> None:
    """Raises DTypeError for what has no derivative."""
    if not x.dtype.is_float:
        raise DTypeError(
            f"{what}: {describe(x)} holds {x.dtype.name}; derivatives are taken with respect to "
            "floats"
        )


def seed(y: Tensor, cotangent: Tensor | None, what: str) -> Tensor:
    """The gradient that the walk begins with: of a scalar 1."""
    check_variable(y, what)
    if cotangent is None:
        if y.ndim:
            raise ShapeError(
                f"{what}: {describe(y)} is no scalar; reduce it (loss.mean(), loss.sum()), or give "
                "the gradient that comes in from above"
            )
        return y.graph.constant(1.0, y.dtype)
    if cotangent.extents != y.extents:
        raise ShapeError(f"{what}: the gradient {describe(cotangent)} has another shape than {y}")
    return cotangent.cast(y.dtype)


def check_view(loss: Tensor, x: Tensor, what: str) -> None:
    """Raises GraphError for a view where the loss reads what it is a view of in other ways too.

    Views are composed when they are recorded: a view of `x` is one of x's own operand, and nothing
    tells whether it was made from the one or the other.
    """
    node = x.value.node
    if node.op.name != "View":
        return
    (base,) = node.args
    order = _operands_first(loss.graph, [loss.value])
    if loss.value == base or any(base in _sources(loss.graph, n) for n in order if n is not node):
        raise GraphError(
            f"{what}: {describe(x)} is a view of {describe(loss.graph.wrap(base))}, which the loss "
            "reads in other ways too; views of views are recorded as one, so what reads this view "
            "cannot be told from that. Call view.requires_grad_() before anything reads it, write "
            "what reads it as a function f and take lm.grad(f)(view), or take the gradient of what "
            "it is a view of"
        )


def check_graph(graph: Recorder, tensors: Iterable[Tensor], what: str) -> None:
    """Raises GraphError for a Tensor of another graph."""
    for x in tensors:
        if x.graph is not graph:
            raise GraphError(
                f"{what}: {describe(x)} is of {x.graph.name}, the loss of {graph.name}; "
                "differentiate with respect to Tensors of the loss's graph"
            )

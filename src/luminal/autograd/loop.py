"""The gradient of a Loop is a Loop over the same trips, last one first.

What iteration t's gradient needs is the carried values that it began with: the forward Loop hands
them out as streams (`scan` records them as results that nothing may read; a compile drops those).
The rest of the body is computed again, in the body of the backward Loop, and differentiated there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from luminal.base.errors import GraphError
from luminal.frontend.graph import Recorder
from luminal.frontend.pointwise.derivatives import Derivative
from luminal.frontend.scan import scan
from luminal.frontend.tensor import Tensor
from luminal.hlir.attributes import Body, LoopAttrs
from luminal.hlir.graph import copied, topological
from luminal.hlir.ops import Value

if TYPE_CHECKING:
    from luminal.autograd.rules import Applied, Gradients


def loop_rule(at: Applied, arrived: Gradients) -> Gradients:
    """The gradients of initial values, streams and invariants."""
    from luminal.autograd.reverse import gradients  # it differentiates the body, which may loop

    attrs: LoopAttrs = at.node.attrs
    carried, streams, invariants = attrs.split(at.args)
    whole = [s[0] for s in streams]
    count, history = attrs.carried, _history(at)
    cotangents = [
        at.graph.zeros(y.extents, dtype=y.dtype) if g is None and y.dtype.is_float else g
        for y, g in zip(at.results, arrived, strict=True)
    ]
    # Integers have no gradient: they are replayed, but nothing flows back through them.
    smooth = [k for k, x in enumerate(carried) if x.dtype.is_float]
    flowing = [k for k in range(count, len(cotangents)) if cotangents[k] is not None]
    fixed = [k for k, x in enumerate(invariants) if x.dtype.is_float]
    moving = [k for k, x in enumerate(whole) if x.dtype.is_float]

    def step(carry: Any, x: Any) -> Any:
        onward, sums = carry
        # Storing all that an iteration computed would take its memory times the trips. What it
        # began with is enough: the rest is computed again, which costs one more forward pass at
        # most.
        before, slices, coming = x
        body = onward[0].graph if onward else (before or slices or coming)[0].graph
        args = [*map(body.constant, (*before, *slices, *invariants))]
        results = replay(body, attrs.body, args)
        wanted = [args[k] for k in smooth]
        wanted += [args[count + k] for k in moving]
        wanted += [args[count + len(whole) + k] for k in fixed]
        ends = [results[k] for k in smooth] + [results[k] for k in flowing]
        pulled = gradients(body, ends, [*onward, *coming], [w.value for w in wanted])
        full = [
            body.zeros(w.extents, dtype=w.dtype) if g is None else g
            for w, g in zip(wanted, pulled, strict=True)
        ]
        a, b = len(smooth), len(smooth) + len(moving)
        return (full[:a], [s + g for s, g in zip(sums, full[b:], strict=True)]), full[a:b]

    start = [cotangents[k] for k in smooth]
    zeros = [at.graph.zeros(invariants[k].extents, dtype=invariants[k].dtype) for k in fixed]
    backward = [
        [x.flip(0) for x in history],
        [x.flip(0) for x in whole],
        [g.flip(0) for k in flowing if (g := cotangents[k]) is not None],
    ]
    (first, sums), slices = scan(step, (start, zeros), backward, length=attrs.trips)
    out: list[Tensor | None] = [None] * len(at.args)
    for k, g in zip(smooth, first, strict=True):
        out[k] = g
    for k, g in zip(moving, slices, strict=True):
        out[count + k] = g.flip(0)
    for k, g in zip(fixed, sums, strict=True):
        out[count + len(whole) + k] = g
    return out


def _history(at: Applied) -> list[Tensor]:
    """The streams of what each carried value was at the beginning of the iterations."""
    attrs: LoopAttrs = at.node.attrs
    streams = dict(
        zip(attrs.body.results[attrs.carried :], at.results[attrs.carried :], strict=True)
    )
    begun = [argument.value for argument in attrs.body.arguments[: attrs.carried]]
    if not all(value in streams for value in begun):
        raise GraphError("Loop: its body does not hand out what it carries; record it with lm.scan")
    return [streams[value] for value in begun]


def replay(graph: Recorder, body: Body, args: Sequence[Tensor]) -> list[Tensor]:
    """A Loop's body recorded again, on other arguments, with what is known of its derivatives."""
    values = {a.value: graph.bring(x) for a, x in zip(body.arguments, args, strict=True)}
    nodes = topological(body.results)
    for node in nodes:
        if node.value in values:
            continue
        operands = [values[arg] for arg in node.args]
        for k, value in enumerate(copied(graph.builder, node, operands)):
            values[Value(node, k)] = value
    for node in nodes:
        # A derivative that was recorded with an operation (a custom rule, a stable formula) holds
        # for the replayed operation as well.
        if node in graph.parts:
            for k in range(len(node.types)):
                graph.parts.setdefault(values[Value(node, k)].node, graph.parts[node])
        for value in (Value(node, k) for k in range(len(node.types))):
            derivative = graph.derivatives.get(value)
            if derivative is not None:
                operands = [values[operand] for operand in derivative.operands]
                again = Derivative(tuple(operands), derivative.pull)
                graph.derivatives.setdefault(values[value], again)
    return [graph.wrap(values[result]) for result in body.results]

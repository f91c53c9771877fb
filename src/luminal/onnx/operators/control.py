"""If, Loop and Scan: bodies are graphs of their own that see the names around them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import GraphProto

import luminal as lm
from luminal.base import dtypes
from luminal.base.errors import LuminalError
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call
from luminal.onnx.checks import Check
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.scope import Scope
from luminal.onnx.table import operator
from luminal.onnx.values import Coded, dtype_of_number
from luminal.shape.expression import Expression

MAX_UNROLLED = 4
"""Iterations that are recorded one by one rather than as a loop, and see their number."""


@operator("If")
def if_(call: Call, condition: Tensor) -> Any:
    """The outputs of one of two graphs; where only the run of a body around knows, of both."""
    branches = [call.required("then_branch"), call.required("else_branch")]
    # The condition is a value of a loop's body, which no run has computed yet: both branches are
    # recorded and one is chosen element by element.
    if condition.graph is not call.graph:
        return _either(call, condition, branches)
    chosen = branches[0 if bool(call.read(condition).reshape(-1)[0]) else 1]
    return tuple(body(call, chosen, []))


def _either(call: Call, condition: Tensor, branches: list[GraphProto]) -> Any:
    flag = condition.reshape(())
    checks = call.translation.checks
    outputs = []
    for graph, is_taken in zip(branches, (flag, lm.logical_not(flag)), strict=True):
        with checks.apart() as noted:
            outputs.append(body(call, graph, []))
        for check in noted:  # what is not taken may hold anything
            elements = lm.where(is_taken, check.elements.cast(dtypes.int64), check.low)
            checks.add(check._replace(elements=elements))
    yes, no = outputs
    for a, b in zip(yes, no, strict=True):
        fits = isinstance(a, Tensor) and isinstance(b, Tensor) and a.value.type == b.value.type
        if not fits:
            raise UnsupportedError("If in a loop, with branches of different types")
    return tuple(lm.where(flag, a, b) for a, b in zip(yes, no, strict=True))


def body(call: Call, graph: GraphProto, inputs: list[Any]) -> list[Any]:
    """The outputs of an inner graph for its inputs."""
    inner = Scope(call.scope.opsets, parent=call.scope, attributes=call.scope.attributes)
    named = dict(zip((argument.name for argument in graph.input), inputs, strict=False))
    return call.translation.block(graph, named, inner)


# --- Loop -----------------------------------------------------------------------------------------


@operator("Loop")
def loop(call: Call, trips: Any, condition: Any, *carried: Any) -> Any:
    """A body again and again: carried values, then what each iteration gives, stacked.

    With a number of trips that is known, a condition that stays true and values that keep their
    types it is a loop of the library; else iterations are recorded one by one, and where only data
    says when to stop, each is a piece.
    """
    graph = call.required("body")
    if trips is not None and _stays_true(call, graph, condition):
        count = call.known(trips).reshape(-1)[0]
        if isinstance(count, Expression) or count > MAX_UNROLLED:
            try:
                return _scanned(call, graph, count, carried)
            except LuminalError:
                # A number of trips that only the dims tell cannot be written out, so there is no
                # second way.
                if isinstance(count, Expression):
                    raise
    return _unrolled(call, graph)


def _stays_true(call: Call, graph: GraphProto, condition: Any) -> bool:
    """Does the condition begin as true, and does the body hand it on or give a literal true?"""
    if condition is not None and not call.read(condition).reshape(-1)[0]:
        return False
    name, argument = graph.output[0].name, graph.input[1].name
    maker = {output: node for node in graph.node for output in node.output}
    while name in maker and maker[name].op_type == "Identity":
        name = maker[name].input[0]
    if name == argument:
        return True
    if name in maker and maker[name].op_type == "Constant":
        proto = next(a.t for a in maker[name].attribute if a.name == "value")
        return bool(call.translation.source.array(proto).reshape(-1)[0])
    literal = [initializer for initializer in graph.initializer if initializer.name == name]
    return bool(literal) and bool(call.translation.source.array(literal[0]).reshape(-1)[0])


def _scanned(call: Call, graph: GraphProto, count: Any, carried: tuple[Any, ...]) -> Any:
    if not all(isinstance(x, Tensor) for x in carried):
        raise UnsupportedError("a loop of the library carries tensors only")
    numbers = call.graph.arange(count if isinstance(count, Expression) else int(count))
    true = call.graph.constant(True)

    def step(state: list[Tensor], number: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        inputs = [_shaped(number, graph.input[0]), _shaped(true, graph.input[1]), *state]
        outputs = body(call, graph, inputs)[1:]
        if not all(isinstance(x, Tensor) for x in outputs):
            raise UnsupportedError("a loop of the library gives tensors only")
        return outputs[: len(state)], outputs[len(state) :]

    last, stacked = _looped(call, step, list(carried), numbers)
    return (*last, *stacked)


def _looped(call: Call, step: Any, carried: list[Tensor], streams: Any) -> Any:
    """`lm.scan`; what its body's nodes require is looked at for all iterations together."""
    checks = call.translation.checks
    noted: list[Check] = []

    def checked(state: list[Tensor], slices: Any) -> Any:
        with checks.apart() as waiting:
            state, ys = step(state, slices)
        noted.extend(waiting)
        return state, (ys, [_ends(check.elements, call) for check in noted])

    last, (stacked, ends) = lm.scan(checked, carried, streams)
    for check, elements in zip(noted, ends, strict=True):
        checks.add(check._replace(elements=elements))
    return last, stacked


def _ends(elements: Tensor, call: Call) -> Tensor:
    """What tells of elements in each iteration: of those from around a loop the least and most."""
    if elements.graph is not call.graph or not all(n.is_const for n in elements.extents):
        return elements
    return lm.stack([elements.amin(), elements.amax()])


def _shaped(x: Tensor, declared: Any) -> Tensor:
    """A scalar as the body declares it: some take it as a vector of one element."""
    shape = declared.type.tensor_type.shape.dim
    return x.reshape(1) if len(shape) == 1 else x


def _unrolled(call: Call, graph: GraphProto) -> Any:
    """Iterations one by one. What lives through them is held in a scope, where answers reach it."""
    translation = call.translation
    most = call.input(0)
    limit = None if most is None else int(call.read(most).reshape(-1)[0])
    condition = call.input(1)
    go_on = condition is None or bool(call.read(condition).reshape(-1)[0])
    count = len(graph.input) - 2
    held = Scope(call.scope.opsets)
    held.values = {
        "carried": [call.input(2 + k) for k in range(count)],
        "given": [[] for _ in range(len(graph.output) - 1 - count)],
    }
    with translation.holding(held):
        number = 0
        while go_on and (limit is None or number < limit):
            early = number < MAX_UNROLLED
            trip = call.graph.constant(np.int64(number)) if early else translation.trip(number)
            at = _shaped(trip, graph.input[0])
            true = _shaped(call.graph.constant(True), graph.input[1])
            outputs = body(call, graph, [at, true, *held.values["carried"]])
            held.values["carried"] = outputs[1 : 1 + count]
            for rows, y in zip(held.values["given"], outputs[1 + count :], strict=True):
                rows.append(y)
            number += 1
            go_on = bool(call.read(outputs[0]).reshape(-1)[0])
        stacked = [_stacked(call, ys, out) for ys, out in
                   zip(held.values["given"], graph.output[1 + count :], strict=True)]  # fmt: skip
        return (*held.values["carried"], *stacked)


def _stacked(call: Call, ys: list[Any], declared: Any) -> Any:
    """What iterations gave, along a new first dim; of none, by the declared type."""
    if not ys:
        kind = declared.type.tensor_type
        shape = [max(d.dim_value, 0) for d in kind.shape.dim]
        return call.graph.zeros((0, *shape), dtype=dtype_of_number(kind.elem_type))
    if isinstance(ys[0], Coded):
        return Coded(lm.stack([y.codes for y in ys]), ys[0].number)
    if not isinstance(ys[0], Tensor):
        raise OnnxError("the outputs of iterations are tensors")
    return lm.stack(ys)


# --- Scan -----------------------------------------------------------------------------------------


@operator("Scan")
def scan(call: Call, *inputs: Any) -> Any:
    """A body along the slices of tensors; states are handed on, outputs stacked."""
    graph = call.required("body")
    count = call.required("num_scan_inputs")
    if call.version < 9:
        return _batched_scan(call, graph, inputs, count)
    return _scan(call, graph, list(inputs), count)


def _scan(call: Call, graph: GraphProto, inputs: list[Any], count: int) -> Any:
    states, streams = inputs[:-count], inputs[-count:]
    outputs = len(graph.output) - len(states)
    axes = call.attribute("scan_input_axes") or [0] * count
    back = call.attribute("scan_input_directions") or [0] * count
    axes_out = call.attribute("scan_output_axes") or [0] * outputs
    back_out = call.attribute("scan_output_directions") or [0] * outputs
    moved = []
    for x, axis, reverse in zip(streams, axes, back, strict=True):
        x = x.movedim(axis, 0) if axis else x
        moved.append(x.flip(0) if reverse else x)

    def step(state: list[Tensor], slices: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        outputs = body(call, graph, [*state, *slices])
        return outputs[: len(state)], outputs[len(state) :]

    last, stacked = _looped(call, step, states, moved)
    moved_back = []
    for y, axis, reverse in zip(stacked, axes_out, back_out, strict=True):
        y = y.flip(0) if reverse else y
        moved_back.append(y.movedim(0, axis) if axis else y)
    return (*last, *moved_back)


def _batched_scan(call: Call, graph: GraphProto, inputs: tuple[Any, ...], count: int) -> Any:
    """Version 8: the first input may give lengths, all others have a batch in front."""
    lengths, *rest = inputs
    if lengths is not None:
        raise UnsupportedError("Scan of version 8 with lengths of sequences")
    batch = rest[0].extents[0]
    if not batch.is_const:
        raise UnsupportedError("Scan of version 8 with a batch that is a dim")
    rows = [_scan(call, graph, [x.select(0, k) for x in rest], count) for k in range(batch.value)]
    return tuple(lm.stack(list(results)) for results in zip(*rows, strict=True))

"""Sequences and optionals: lists of values, and values that may be missing."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import luminal as lm
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call, ints_of
from luminal.onnx.errors import OnnxError
from luminal.onnx.operators.control import body
from luminal.onnx.operators.shapes import tensor_of
from luminal.onnx.table import operator
from luminal.onnx.values import Array
from luminal.shape.expression import minimum


def _place(items: list[Any], position: Array | None, *, beyond: int = 0) -> int:
    """A position counted from the front; raises OnnxError out of range."""
    at = ints_of(position)[0] if position is not None else len(items) - 1 + beyond
    if not -len(items) <= at < len(items) + beyond:
        raise OnnxError(f"position {at} of a sequence of {len(items)}")
    return at + len(items) if at < 0 else at


@operator("SequenceEmpty")
def sequence_empty(call: Call) -> Any:
    """A sequence of nothing, of whatever dtype."""
    call.unneeded("dtype")
    return []


@operator("SequenceConstruct")
def sequence_construct(call: Call, *items: Any) -> Any:
    """A sequence of the inputs."""
    return list(items)


@operator("SequenceInsert", known_inputs=(2,), any_dtype=True)
def sequence_insert(call: Call, items: list[Any], x: Any, position: Array | None = None) -> Any:
    """One more item, by default the last."""
    at = _place(items, position, beyond=1)
    return [*items[:at], x, *items[at:]]


@operator("SequenceErase", known_inputs=(1,))
def sequence_erase(call: Call, items: list[Any], position: Array | None = None) -> Any:
    """One item less, by default without the last."""
    at = _place(items, position)
    return [*items[:at], *items[at + 1 :]]


@operator("SequenceAt", known_inputs=(1,))
def sequence_at(call: Call, items: list[Any], position: Array) -> Any:
    """Gives one item of a sequence."""
    return items[_place(items, position)]


@operator("SequenceLength")
def sequence_length(call: Call, items: list[Any]) -> Tensor:
    """How many items there are."""
    return call.graph.constant(len(items))


@operator("ConcatFromSequence")
def concat_from_sequence(call: Call, items: list[Any]) -> Any:
    """All items along an axis, which `new_axis` makes."""
    if not items:
        raise OnnxError("ConcatFromSequence of an empty sequence")
    join = lm.stack if call.attribute("new_axis", 0) else lm.cat
    return join(items, call.required("axis"))


@operator("SplitToSequence", known_inputs=(1,))
def split_to_sequence(call: Call, x: Tensor, sizes: Array | None = None) -> Any:
    """Parts along an axis: of given sizes, of one size, or single slices."""
    axis = call.axis(0, tensor_of(x).ndim)
    extent = tensor_of(x).extents[axis]
    if sizes is not None and sizes.ndim == 1:
        parts = ints_of(sizes)
        call.graph.require(extent.eq(sum(parts)), f"parts of {parts}, {extent} in all")
    else:
        size = 1 if sizes is None else ints_of(sizes)[0]
        if size < 1:
            raise OnnxError(f"parts of {size}; they must have 1 or more")
        places = range(0, extent.value, size)
        call.count(len(places))
        parts = [int(minimum(size, extent - at)) for at in places]
    starts = accumulate(parts, initial=0)
    slices = [x.narrow(axis, start, part) for start, part in zip(starts, parts, strict=False)]
    if sizes is None and not call.attribute("keepdims", 1):
        return [y.squeeze(axis) for y in slices]
    return slices


@operator("SequenceMap")
def sequence_map(call: Call, items: list[Any], *others: Any) -> Any:
    """A body on each item; others are sequences as long, or the same for all."""
    graph = call.required("body")
    rows = []
    for k, item in enumerate(items):
        rows.append(body(call, graph, [item, *(_item(x, k) for x in others)]))
    if not rows:
        return tuple([] for _ in graph.output)
    return tuple([*items_of_output] for items_of_output in zip(*rows, strict=True))


def _item(x: Any, k: int) -> Any:
    return x[k] if isinstance(x, list) else x


@operator("Optional")
def optional(call: Call, x: Any = None) -> Any:
    """A value, or nothing."""
    return x


@operator("OptionalHasElement")
def optional_has_element(call: Call, x: Any = None) -> Tensor:
    """Is there a value?"""
    return call.graph.constant(x is not None)


@operator("OptionalGetElement")
def optional_get_element(call: Call, x: Any) -> Any:
    """The value; raises OnnxError where there is none."""
    if x is None:
        raise OnnxError("OptionalGetElement of an optional that holds nothing")
    return x

"""Reductions, positions of extremes, running sums, sorted parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import luminal as lm
from luminal.base import dtypes
from luminal.frontend.handle import work_dtype
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call, extents_of, ints_of, only
from luminal.onnx.table import operator
from luminal.onnx.values import Array

Reduction = Callable[..., Tensor]


def _log_sum(x: Tensor, axes: Any, keep: bool) -> Tensor:
    return lm.log(lm.sum(x, axes, keep))


def _norm(x: Tensor, axes: Any, keep: bool) -> Tensor:
    wide = x.cast(work_dtype(x.dtype))
    return lm.sqrt(lm.sum(wide * wide, axes, keep))


def _mean(x: Tensor, axes: Any, keep: bool) -> Tensor:
    return lm.mean(x.cast(work_dtype(x.dtype)), axes, keep)


def _product(x: Tensor, axes: Any, keep: bool) -> Tensor:
    for axis in sorted(range(x.ndim) if axes is None else axes, reverse=True):
        x = lm.prod(x, axis, keep)
    return x


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": lambda x, axes, keep: lm.sum(lm.abs(x), axes, keep),
    "ReduceL2": _norm,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": lambda x, axes, keep: lm.logsumexp(x, axes, keep),
    "ReduceMax": lambda x, axes, keep: lm.amax(x, axes, keep),
    "ReduceMean": _mean,
    "ReduceMin": lambda x, axes, keep: lm.amin(x, axes, keep),
    "ReduceProd": _product,
    "ReduceSum": lambda x, axes, keep: lm.sum(x, axes, keep),
    "ReduceSumSquare": lambda x, axes, keep: lm.sum(x * x, axes, keep),
}


def _of_nothing(name: str, x: Tensor) -> Any:
    """What an extreme of no elements is."""
    if x.dtype.kind == "bool":
        return name == "ReduceMin"
    lowest = x.dtype.lowest
    if name == "ReduceMax":
        return lowest
    return float("inf") if x.dtype.is_float else x.dtype.largest


def _enter(name: str, function: Reduction) -> None:
    @operator(name)
    def record(call: Call, x: Tensor, axes: Any = None) -> Tensor:
        numbers = call.ints(1, "axes")
        none_for_none = call.attribute("noop_with_empty_axes", 0)  # also said where there are axes
        if not numbers and none_for_none:
            return function(x, (), True).cast(x.dtype)
        places = tuple(call.place(k, x.ndim) for k in numbers) if numbers else tuple(range(x.ndim))
        keep = bool(call.attribute("keepdims", 1))
        # The standard defines the extreme of no elements (since version 20: the least or the
        # greatest value of the dtype), where the functions of tensors, as NumPy's, refuse it.
        if name in ("ReduceMax", "ReduceMin") and any(x.extents[k] == 0 for k in places):
            kept = [1 if k in places else n for k, n in enumerate(x.extents)]
            shape = kept if keep else [n for k, n in enumerate(x.extents) if k not in places]
            return call.constant(_of_nothing(name, x), x.dtype).broadcast_to(shape)
        return function(x, places, keep).cast(x.dtype)


for _name, _function in _REDUCTIONS.items():
    _enter(_name, _function)


def _extreme_place(call: Call, x: Tensor, function: Callable[..., Tensor]) -> Tensor:
    axis = call.axis(0, x.ndim)
    keep = bool(call.attribute("keepdims", 1))
    if not call.attribute("select_last_index", 0):
        return function(x, axis, keep)
    # The last of equal elements is the first one from behind.
    from_end = function(x.flip(axis), axis, keep)
    return lm.rsub(from_end, call.graph.constant(x.extents[axis] - 1))


@operator("ArgMax")
def arg_max(call: Call, x: Tensor) -> Tensor:
    """Where the greatest is: the first of equals, or the last."""
    return _extreme_place(call, x, lm.argmax)


@operator("ArgMin")
def arg_min(call: Call, x: Tensor) -> Tensor:
    """Where the least is."""
    return _extreme_place(call, x, lm.argmin)


@operator("CumSum", "CumProd", known_inputs=(1,))
def cumulative(call: Call, x: Tensor, axis: Array) -> Tensor:
    """Running sums or products; `exclusive`: of the elements before, `reverse`: from the end."""
    along = call.place(only(ints_of(axis)), x.ndim)
    sums = call.node.op_type == "CumSum"
    back = bool(call.attribute("reverse", 0))
    x = x.flip(along) if back else x
    if call.attribute("exclusive", 0):
        first = x.narrow(along, 0, 1)
        first = lm.zeros_like(first) if sums else lm.ones_like(first)
        x = lm.cat([first, x.narrow(along, 0, x.extents[along] - 1)], along)
    running = (lm.cumsum if sums else lm.cumprod)(x, along, x.dtype)
    return running.flip(along) if back else running


@operator("TopK", known_inputs=(1,))
def top_k(call: Call, x: Tensor, k: Array | None = None) -> tuple[Tensor, Tensor]:
    """The k greatest or least along an axis, and where they are."""
    axis = call.attribute("axis", -1)
    count = call.required("k") if k is None else only(extents_of(k))
    top = lm.topk(x, count, axis, bool(call.attribute("largest", 1)))
    return top.values, top.indices.cast(dtypes.int64)

"""ONNX's normalizations, operator by operator."""

from __future__ import annotations

from typing import Any

import luminal as lm
from luminal.frontend.tensor import Tensor
from luminal.nn import functional as F
from luminal.onnx.call import Call
from luminal.onnx.errors import UnsupportedError
from luminal.onnx.table import operator
from luminal.onnx.values import dtype_of_number


def _along(vector: Tensor, x: Tensor) -> Tensor:
    """A vector along dim 1."""
    return vector.reshape(-1, *(1,) * (x.ndim - 2))


@operator("BatchNormalization")
def batch_normalization(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Any:
    """By running statistics; in training by those of the batch, with the next running ones."""
    eps, rate = call.attribute("epsilon", 1e-5), call.attribute("momentum", 0.9)
    if call.version < 9 and not call.attribute("spatial", 1):
        raise UnsupportedError("BatchNormalization with spatial = 0")
    training = call.attribute("training_mode", 0) or (
        call.version < 7 and not call.attribute("is_test", 0)
    )
    if not training:
        # All four vectors become one factor and one shift before a run, as they are weights; the
        # run has one multiplication and one addition left.
        wide = lm.rsqrt(var.cast(scale.dtype) + eps) * scale
        shift = bias - mean.cast(scale.dtype) * wide
        return (x * _along(wide, x) + _along(shift, x)).cast(x.dtype)
    over = (0, *range(2, x.ndim))
    work = x.cast(x.dtype.compute)
    here, spread = work.mean(over), work.var(over, correction=0)
    y = (work - _along(here, x)) * _along(lm.rsqrt(spread + eps) * scale, x) + _along(bias, x)
    running = [
        (old * rate + new * (1 - rate)).cast(old.dtype)
        for old, new in ((mean, here), (var, spread))
    ]
    return (y.cast(x.dtype), *running)


@operator("InstanceNormalization")
def instance_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Each channel of each picture to mean 0 and variance 1."""
    return F.instance_norm(x, None, None, scale, bias, eps=call.attribute("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
    """The dims from `axis` on to mean 0 and variance 1."""
    axis = call.axis(-1, x.ndim)
    eps = call.attribute("epsilon", 1e-5)
    shape = x.extents[axis:]
    weight = scale.broadcast_to(shape)
    shift = None if bias is None else bias.broadcast_to(shape)
    normalized = F.layer_norm(x, shape, weight, shift, eps)
    if len(call.node.output) == 1:
        return normalized
    over = tuple(range(axis, x.ndim))
    work = x.cast(dtype_of_number(call.attribute("stash_type", 1)))
    mean = work.mean(over, True)
    return normalized, mean, lm.rsqrt(work.var(over, correction=0, keepdim=True) + eps)


@operator("RMSNormalization")
def rms_normalization(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    """The dims from `axis` on to mean square 1."""
    axis = call.axis(-1, x.ndim)
    work = x.cast(dtype_of_number(call.attribute("stash_type", 1)))
    over = tuple(range(axis, x.ndim))
    root = lm.rsqrt((work * work).mean(over, True) + call.attribute("epsilon", 1e-5))
    return ((work * root).cast(scale.dtype) * scale).cast(scale.dtype)


@operator("LRN")
def local_response_normalization(call: Call, x: Tensor) -> Tensor:
    """By the squares of the channels around."""
    return F.local_response_norm(
        x,
        call.required("size"),
        call.attribute("alpha", 1e-4),
        call.attribute("beta", 0.75),
        call.attribute("bias", 1.0),
    )


@operator("LpNormalization")
def lp_normalization(call: Call, x: Tensor) -> Any:
    """By the p-norm along an axis; 0 where that is 0."""
    axis, p = call.attribute("axis", -1), call.attribute("p", 2)
    work = x.cast(x.dtype.compute)
    norm = lm.abs(work).sum(axis, True) if p == 1 else lm.sqrt((work * work).sum(axis, True))
    return lm.where(norm == 0, 0, work / norm).cast(x.dtype)

"""ONNX's activations, operator by operator."""

from __future__ import annotations

from typing import Any

import luminal as lm
from luminal.frontend.handle import work_dtype
from luminal.frontend.tensor import Tensor
from luminal.nn import functional as F
from luminal.onnx.call import Call
from luminal.onnx.table import operator


@operator("Relu")
def relu(call: Call, x: Tensor) -> Tensor:
    """Gives max(x, 0), element by element."""
    return F.relu(x)


@operator("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    """alpha * x below 0."""
    return F.leaky_relu(x, call.attribute("alpha", 0.01))


@operator("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Any:
    """slope * x below 0, the slope broadcast to x."""
    # Before operator set 7 there was no broadcasting from the right, and the slope was one for each
    # channel.
    if call.version < 7 and slope.ndim == 1 and x.ndim > 1:
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return lm.where(x < 0, x * slope, x)


@operator("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    """alpha * (exp(x) - 1) below 0."""
    return F.elu(x, call.attribute("alpha", 1.0))


@operator("Celu")
def celu(call: Call, x: Tensor) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return F.celu(x, call.attribute("alpha", 1.0))


@operator("Selu")
def selu(call: Call, x: Tensor) -> Any:
    """gamma * x above 0, gamma * alpha * (exp(x) - 1) below."""
    alpha = call.attribute("alpha", 1.67326319217681884765625)
    gamma = call.attribute("gamma", 1.05070102214813232421875)
    return F.elu(x, alpha) * gamma


@operator("ThresholdedRelu")
def thresholded_relu(call: Call, x: Tensor) -> Any:
    """x above alpha, else 0."""
    return lm.where(x > call.attribute("alpha", 1.0), x, 0)


@operator("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Any:
    """alpha * x + beta, cut at 0 and 1."""
    return (x * call.attribute("alpha", 0.2) + call.attribute("beta", 0.5)).clip(0, 1)


@operator("HardSwish")
def hard_swish(call: Call, x: Tensor) -> Tensor:
    """x * hard_sigmoid(x) with alpha = 1/6."""
    return F.hardswish(x)


@operator("Gelu")
def gelu(call: Call, x: Tensor) -> Tensor:
    """Gives x * Phi(x), exactly or by a tanh."""
    return F.gelu(x, call.attribute("approximate", "none"))


@operator("Mish")
def mish(call: Call, x: Tensor) -> Tensor:
    """Gives x * tanh(softplus(x)), element by element."""
    return F.mish(x)


@operator("Swish")
def swish(call: Call, x: Tensor) -> Tensor:
    """x * sigmoid(alpha * x)."""
    return x * lm.sigmoid(x * call.attribute("alpha", 1.0))


@operator("Softplus")
def softplus(call: Call, x: Tensor) -> Tensor:
    """Gives log(1 + exp(x)), element by element."""
    return F.softplus(x)


@operator("Softsign")
def softsign(call: Call, x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return F.softsign(x)


@operator("Shrink")
def shrink(call: Call, x: Tensor) -> Any:
    """Toward 0 by `bias` outside of `lambd`, 0 inside."""
    bias, around = call.attribute("bias", 0.0), call.attribute("lambd", 0.5)
    wide = x.cast(work_dtype(x.dtype))
    far = lm.where(wide < -around, wide + bias, lm.where(wide > around, wide - bias, 0))
    return far.cast(x.dtype)


def _along_axis(call: Call, x: Tensor, function: Any) -> Any:
    """Over `axis`; before version 13 over all dims from there on, as one."""
    if call.version >= 13:
        return function(x, call.attribute("axis", -1))
    axis = call.attribute("axis", 1)
    # The old form flattened to a matrix, which the rank itself could name as well: then each row is
    # one element.
    axis = axis if axis == x.ndim else call.place(axis, x.ndim)
    result: Tensor = (
        function(x.flatten(axis), axis) if axis < x.ndim else function(x.unsqueeze(-1), -1)
    )
    return result.reshape(*x.extents)


@operator("Softmax")
def softmax(call: Call, x: Tensor) -> Any:
    """exp(x) over its sum along an axis."""
    return _along_axis(call, x, lm.softmax)


@operator("LogSoftmax")
def log_softmax(call: Call, x: Tensor) -> Any:
    """The logarithm of softmax."""
    return _along_axis(call, x, lm.log_softmax)


@operator("Hardmax")
def hardmax(call: Call, x: Tensor) -> Any:
    """1 at the first of the greatest along an axis, else 0."""

    def one(x: Tensor, axis: int) -> Any:
        place = x.graph.iota(x.extents, axis)
        return (place == x.argmax(axis, True)).cast(x.dtype)

    return _along_axis(call, x, one)

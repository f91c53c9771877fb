"""Operators on elements: arithmetic, comparisons, logic, bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import luminal as lm
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call
from luminal.onnx.table import operator

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": lm.abs,
    "Acos": lm.acos,
    "Acosh": lm.acosh,
    "Asin": lm.asin,
    "Asinh": lm.asinh,
    "Atan": lm.atan,
    "Atanh": lm.atanh,
    "BitwiseNot": lm.bitwise_not,
    "Ceil": lm.ceil,
    "Cos": lm.cos,
    "Cosh": lm.cosh,
    "Erf": lm.erf,
    "Exp": lm.exp,
    "Floor": lm.floor,
    "IsNaN": lm.isnan,
    "Log": lm.log,
    "Neg": lm.neg,
    "Not": lm.logical_not,
    "Reciprocal": lm.reciprocal,
    "Round": lm.round,
    "Sigmoid": lm.sigmoid,
    "Sign": lm.sign,
    "Sin": lm.sin,
    "Sinh": lm.sinh,
    "Sqrt": lm.sqrt,
    "Tan": lm.tan,
    "Tanh": lm.tanh,
}

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": lm.add,
    "And": lm.logical_and,
    "BitwiseAnd": lm.bitwise_and,
    "BitwiseOr": lm.bitwise_or,
    "BitwiseXor": lm.bitwise_xor,
    "Equal": lm.eq,
    "Greater": lm.gt,
    "GreaterOrEqual": lm.ge,
    "Less": lm.lt,
    "LessOrEqual": lm.le,
    "Mul": lm.mul,
    "Or": lm.logical_or,
    "Sub": lm.sub,
    "Xor": lm.logical_xor,
}

_VARIADIC: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Max": lm.maximum,
    "Min": lm.minimum,
    "Sum": lm.add,
}


def aligned(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """`b` as versions before 7 meant it: its dims stand at `axis` of a, or last."""
    if not call.attribute("broadcast", 0):
        return b
    axis = call.attribute("axis", a.ndim - b.ndim)
    axis = axis + a.ndim if axis < 0 else axis
    return b.reshape(*b.extents, *(1,) * (a.ndim - axis - b.ndim))


def _enter_unary(name: str, function: Callable[[Tensor], Tensor]) -> None:
    @operator(name)
    def record(call: Call, x: Tensor) -> Tensor:
        return function(x)


def _enter_binary(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @operator(name)
    def record(call: Call, a: Tensor, b: Tensor) -> Tensor:
        return function(a, aligned(call, a, b))


def _enter_variadic(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @operator(name)
    def record(call: Call, *xs: Tensor) -> Tensor:
        return reduce(function, xs)


for _name, _unary in _UNARY.items():
    _enter_unary(_name, _unary)
for _name, _binary in _BINARY.items():
    _enter_binary(_name, _binary)
for _name, _variadic in _VARIADIC.items():
    _enter_variadic(_name, _variadic)


@operator("Div")
def div(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Divides; quotients of integers go toward 0."""
    b = aligned(call, a, b)
    return lm.div(a, b) if a.dtype.is_float else lm.div(a, b, rounding_mode="trunc").cast(a.dtype)


@operator("Mod")
def mod(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The sign of the divisor; with `fmod` that of the dividend."""
    return lm.fmod(a, b) if call.attribute("fmod", 0) else lm.remainder(a, b)


@operator("Pow")
def power(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """In the dtype of the base."""
    b = aligned(call, a, b)
    if b.dtype.is_float and not a.dtype.is_float:
        return lm.pow(a.cast(b.dtype), b).cast(a.dtype)
    return lm.pow(a, b).cast(a.dtype)


@operator("Mean")
def mean(call: Call, *xs: Tensor) -> Tensor:
    """The mean of several tensors."""
    return reduce(lm.add, xs) / len(xs)


@operator("BitShift")
def bit_shift(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """To the left or to the right."""
    left = call.required("direction") == "LEFT"
    return lm.bitwise_left_shift(a, b) if left else lm.bitwise_right_shift(a, b)


@operator("IsInf")
def is_inf(call: Call, x: Tensor) -> Tensor:
    """Finds infinities of the signs that the attributes ask for."""
    below, above = call.attribute("detect_negative", 1), call.attribute("detect_positive", 1)
    if below and above:
        return lm.isinf(x)
    if not (below or above):
        return lm.zeros_like(x, dtype=lm.bool_)
    return lm.isneginf(x) if below else lm.isposinf(x)


@operator("Where")
def where(call: Call, condition: Tensor, a: Any, b: Any) -> Any:
    """One of two elements."""
    return lm.where(condition, a, b)


@operator("Clip")
def clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Between two numbers: attributes till version 10, inputs since."""
    if call.version < 11:
        lowest, highest = call.attribute("min"), call.attribute("max")
        low = None if lowest is None else call.constant(lowest, x.dtype)
        high = None if highest is None else call.constant(highest, x.dtype)
    if low is not None:
        x = lm.maximum(x, low)
    return x if high is None else lm.minimum(x, high)

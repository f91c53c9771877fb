"""Operators of com.microsoft that onnxruntime.quantization writes, with their exact meaning: the
numbers that the quantised inputs stand for, the operator of ai.onnx on these, quantised again.
Weights of 2, 4 or 8 bits in blocks (MatMulNBits) stay packed, as those of GGUF do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import luminal as lm
from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call
from luminal.onnx.operators import activations, quantised, windows
from luminal.onnx.table import operator
from luminal.onnx.values import number_of

DOMAIN = "com.microsoft"


@operator("QuantizeLinear", any_dtype=True, domain=DOMAIN)
def quantize_linear(call: Call, x: Tensor, scale: Any, zero: Any = None) -> Any:
    """QuantizeLinear of Microsoft's domain is that of ai.onnx, which had fewer dtypes once."""
    return quantised.quantize_linear(call, x, scale, zero)


@operator("DequantizeLinear", any_dtype=True, domain=DOMAIN)
def dequantize_linear(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    """DequantizeLinear of Microsoft's domain, which is that of ai.onnx."""
    return quantised.dequantize_linear(call, x, scale, zero)


def _numbers(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """What quantised elements of one scale stand for."""
    whole = x.cast(dtypes.int32)
    if zero is not None:
        whole = whole - zero.cast(dtypes.int32).reshape(())
    return whole.cast(dtypes.float32) * scale.reshape(())


def _codes(y: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Any:
    """Numbers quantised with one scale, in the dtype of the zero point, or else that of `like`."""
    shift = None if zero is None else zero.cast(dtypes.float32).reshape(())
    return quantised.quantised(
        y, scale.reshape(()), shift, number_of(like if zero is None else zero)
    )


def _enter_pair(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @operator(name, domain=DOMAIN)
    def record(
        call: Call,
        a: Tensor,
        a_scale: Tensor,
        a_zero: Tensor | None,
        b: Tensor,
        b_scale: Tensor,
        b_zero: Tensor | None,
        y_scale: Tensor,
        y_zero: Tensor | None = None,
    ) -> Any:
        """The operation on what two quantised tensors stand for."""
        numbers = function(_numbers(a, a_scale, a_zero), _numbers(b, b_scale, b_zero))
        return _codes(numbers, y_scale, y_zero, a)


_enter_pair("QLinearAdd", lambda a, b: a + b)
_enter_pair("QLinearMul", lambda a, b: a * b)


def _enter_single(name: str, function: Callable[[Call, Tensor], Any]) -> None:
    @operator(name, domain=DOMAIN)
    def record(
        call: Call,
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor | None,
        y_scale: Tensor,
        y_zero: Tensor | None = None,
    ) -> Any:
        """The operation on what a quantised tensor stands for."""
        if call.attribute("channels_last", 0):
            raise ShapeError(f"{name}: channels_last is not supported")
        return _codes(function(call, _numbers(x, x_scale, x_zero)), y_scale, y_zero, x)


def _softmax(call: Call, x: Tensor) -> Any:
    """By the rule of the operator set of ai.onnx that `opset` names."""
    axis = call.attribute("axis", -1)
    if call.attribute("opset", 13) >= 13:
        return lm.softmax(x, axis)
    rows = x.flatten(call.place(axis, x.ndim)) if x.ndim else x
    return lm.softmax(rows, -1).reshape(*x.shape)


_enter_single("QLinearSigmoid", lambda call, x: x.sigmoid())
_enter_single("QLinearLeakyRelu", activations.leaky_relu)
_enter_single("QLinearAveragePool", windows.average_pool)
_enter_single("QLinearGlobalAveragePool", windows.global_average_pool)
_enter_single("QLinearSoftmax", _softmax)


@operator("QLinearConcat", domain=DOMAIN)
def q_linear_concat(call: Call, y_scale: Tensor, y_zero: Tensor, *parts: Tensor) -> Any:
    """Tensors of a scale each, one after the other along an axis, in one scale."""
    numbers = [_numbers(*parts[k : k + 3]) for k in range(0, len(parts), 3)]
    return _codes(lm.cat(numbers, call.required("axis")), y_scale, y_zero, y_zero)


@operator("QLinearWhere", domain=DOMAIN)
def q_linear_where(
    call: Call,
    condition: Tensor,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    scale: Tensor,
    zero: Tensor,
) -> Any:
    """Takes elements of two tensors of a scale each, by a condition, in one scale."""
    numbers = lm.where(condition, _numbers(x, x_scale, x_zero), _numbers(y, y_scale, y_zero))
    return _codes(numbers, scale, zero, x)


@operator("QGemm", domain=DOMAIN)
def q_gemm(
    call: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
) -> Any:
    """alpha * A @ B + C, summed in int32 (C has the scale of the products); floats without a scale
    of the result.
    """
    # Integers all the way to the sum, so no order of adding changes it.
    left = a.cast(dtypes.int32) - a_zero.cast(dtypes.int32).reshape(())
    right = b.cast(dtypes.int32)
    columns = b_zero.cast(dtypes.int32)
    across = call.attribute("transB", 0)
    if columns.ndim == 1 and columns.shape[0] != 1:
        right = right - (columns.unsqueeze(-1) if across else columns)
    else:
        right = right - columns.reshape(())
    left = left.mT if call.attribute("transA", 0) else left
    total = lm.matmul(left, right.mT if across else right).cast(dtypes.int32)
    if c is not None:
        total = total + c
    one = b_scale.ndim == 0 or b_scale.shape == (1,)
    ratio = a_scale.reshape(()) * (b_scale.reshape(()) if one else b_scale)
    numbers = total.cast(dtypes.float32) * (ratio * call.attribute("alpha", 1.0))
    return numbers if y_scale is None else _codes(numbers, y_scale, y_zero, a)


@operator("MatMulNBits", any_dtype=True, domain=DOMAIN)
def mat_mul_n_bits(
    call: Call,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    groups: Tensor | None = None,
    bias: Tensor | None = None,
) -> Any:
    """A @ W.T + bias, W [N, K] by codes of few bits, in blocks of a row that have a scale each."""
    columns, rows = call.required("K"), call.required("N")
    size, bits = call.required("block_size"), call.attribute("bits", 4)
    if bits not in (2, 4, 8):
        raise ShapeError(f"MatMulNBits: codes of {bits} bits are not supported; of 2, 4 or 8")
    blocks = -(-columns // size)
    codes = _unpacked(b.reshape(rows, blocks * size * bits // 8), bits)
    if zeros is None:
        # Without zero points codes are unsigned around the middle.
        middle = call.constant(2.0 ** (bits - 1), dtypes.float32)
        shift = middle.broadcast_to((rows, blocks))
    elif zeros.dtype is dtypes.uint8:
        shift = _unpacked(zeros.reshape(rows, -1), bits)[:, :blocks]
    else:
        shift = zeros.reshape(rows, blocks).cast(dtypes.float32)
    scale = scales.reshape(rows, blocks).cast(dtypes.float32)
    if groups is None:
        codes = codes.reshape(rows, blocks, size)
        shift, scale = shift.unsqueeze(-1), scale.unsqueeze(-1)
        weight = ((codes - shift) * scale).reshape(rows, blocks * size)[:, :columns]
    else:  # the block of each column
        call.within(groups, 0, blocks)
        weight = (codes[:, :columns] - shift[:, groups]) * scale[:, groups]
    y = lm.matmul(a.cast(dtypes.float32), weight.mT)
    return (y if bias is None else y + bias.cast(dtypes.float32)).cast(a.dtype)


def _unpacked(x: Tensor, bits: int) -> Tensor:
    """Rows of bytes as numbers of so many bits, the lowest first."""
    shifts = x.graph.constant(np.arange(0, 8, bits, dtype=np.uint8))
    codes = (x.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    return codes.reshape(x.shape[0], x.shape[1] * (8 // bits)).cast(dtypes.float32)

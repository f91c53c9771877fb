"""Quantised operators, with their exact integer meaning."""

from __future__ import annotations

from typing import Any

import luminal as lm
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call
from luminal.onnx.operators import codes
from luminal.onnx.operators.casts import INTEGERS, decoded, encoded
from luminal.onnx.operators.shapes import tensor_of
from luminal.onnx.operators.windows import convolved
from luminal.onnx.table import operator
from luminal.onnx.values import NARROW, Coded, dtype_of_number, number_of

ROUNDED = 2.0**31
"""Quotients from here on are out of every range: they are cut before they become integers."""
_UINT8 = 2  # ONNX's number of the dtype


def _spread(call: Call, scale: Tensor, x: Tensor) -> Tensor:
    """A scale, or a zero point, in a shape that broadcasts to x's."""
    along, size = call.attribute("axis", 1), call.attribute("block_size", 0)
    if scale.ndim == 0 or (scale.ndim == 1 and scale.shape[0] == 1):
        return scale.reshape(())
    axis = call.place(along, x.ndim)
    if scale.ndim == 1:
        return scale.reshape(-1, *(1,) * (x.ndim - axis - 1))
    if not size:
        return scale
    return scale.repeat_interleave(size, axis).narrow(axis, 0, x.extents[axis])


def _number_in(x: Any, dtype: DType) -> Tensor:
    """The elements in a dtype to compute in."""
    return decoded(x, dtype) if isinstance(x, Coded) else x.cast(dtype)


def quantised(
    x: Tensor, scale: Tensor, zero: Tensor | None, number: int, *, saturate: bool = True
) -> Any:
    """round(x / scale) + zero, within the dtype of this number; floats of 8 bits are not rounded
    to whole numbers.
    """
    quotient = x / scale
    if number in NARROW and number not in INTEGERS:
        shifted = quotient if zero is None else quotient + zero
        return encoded(shifted, number, saturate=saturate)
    low, high = INTEGERS[number] if number in INTEGERS else _limits(dtype_of_number(number))
    # Cut before it is cast to an integer: what is beyond the integers must not wrap into their
    # range.
    whole = lm.round(quotient.clip(-ROUNDED, ROUNDED))
    shifted = whole if zero is None else whole + zero
    cut = shifted.clip(low, high)
    return encoded(cut, number) if number in INTEGERS else cut.cast(dtype_of_number(number))


def _limits(dtype: DType) -> tuple[int, int]:
    return int(dtype.lowest), int(dtype.largest)


@operator("QuantizeLinear", any_dtype=True)
def quantize_linear(call: Call, x: Tensor, scale: Any, zero: Any = None) -> Any:
    """Floats as integers of a scale: one for all, for each slice along an axis, for each block."""
    number = call.attribute("output_dtype") or (_UINT8 if zero is None else number_of(zero))
    factor = _spread(call, _number_in(scale, dtypes.float32), x)
    shift = None if zero is None else _spread(call, _number_in(zero, dtypes.float32), x)
    saturate = bool(call.attribute("saturate", 1))
    return quantised(x.cast(dtypes.float32), factor, shift, number, saturate=saturate)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Floats as uint8 by the range that they and 0 take: (values, scale, zero point).

    Zeros alone have the scale 1, as in ONNX Runtime; by the standard's formula it is 0, by which
    nothing can be divided.
    """
    low, high = lm.minimum(x.amin(), 0.0), lm.maximum(x.amax(), 0.0)
    scale = lm.where(low == high, 1.0, (high - low) / 255)
    zero = lm.round(-low / scale).clip(0, 255)
    return quantised(x, scale, zero, _UINT8), scale, zero.cast(dtypes.uint8)


@operator("DequantizeLinear", any_dtype=True)
def dequantize_linear(call: Call, x: Any, scale: Any, zero: Any = None) -> Tensor:
    """(x - zero) * scale."""
    whole = tensor_of(x)
    work = dtypes.float32 if isinstance(x, Coded) else dtypes.int32
    number = call.attribute("output_dtype") or (1 if isinstance(scale, Coded) else
                                                number_of(scale))  # fmt: skip
    factor = _spread(call, _number_in(scale, dtypes.float32), whole)
    difference = _number_in(x, work)
    if zero is not None:
        difference = difference - _spread(call, _number_in(zero, work), whole)
    numbers = (difference.cast(dtypes.float32) * factor).cast(dtype_of_number(number))
    if isinstance(scale, Tensor) and not isinstance(zero, Coded):
        codes.note(call, numbers, whole, scale, zero)
    return numbers


# --- products -------------------------------------------------------------------------------------


def _zero(zero: Tensor | None, *, rows: bool) -> Tensor | None:
    """A zero point in int32; a vector of them is one for each row, or for each column."""
    if zero is None:
        return None
    shift = zero.cast(dtypes.int32)
    if shift.ndim == 1 and rows and shift.shape[0] != 1:
        shift = shift.unsqueeze(-1)
    return shift.reshape(()) if shift.shape == (1,) else shift


@operator("MatMulInteger")
def mat_mul_integer(
    call: Call, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    """(a - a_zero) @ (b - b_zero) in int32."""
    zeros = _zero(a_zero, rows=True), _zero(b_zero, rows=False)
    return codes.whole_product(a, zeros[0], b, zeros[1])


@operator("QLinearMatMul", any_dtype=True)
def q_linear_mat_mul(
    call: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Any,
) -> Any:
    """The product of what two quantised matrices stand for, quantised."""
    zeros = _zero(a_zero, rows=True), _zero(b_zero, rows=False)
    total = codes.whole_product(a, zeros[0], b, zeros[1])
    ratio = a_scale.cast(dtypes.float32) * b_scale.cast(dtypes.float32)
    factor = y_scale.cast(dtypes.float32) / ratio
    zero = _number_in(y_zero, dtypes.float32)
    return quantised(total.cast(dtypes.float32), factor, zero, number_of(y_zero))


def _channels(x: Tensor, rank: int) -> Tensor:
    """A vector along dim 0 of a weight, or dim 1 of a result."""
    return x if x.ndim == 0 else x.reshape(-1, *(1,) * rank)


@operator("ConvInteger")
def conv_integer(
    call: Call, x: Tensor, weight: Tensor, x_zero: Tensor | None = None, w_zero: Any = None
) -> Tensor:
    """The convolution of x - x_zero and weight - w_zero in int32."""
    return _whole_convolution(call, x, weight, x_zero, w_zero)


def _whole_convolution(
    call: Call, x: Tensor, weight: Tensor, x_zero: Tensor | None, w_zero: Tensor | None
) -> Tensor:
    wide, taps = x.cast(dtypes.int32), weight.cast(dtypes.int32)
    if x_zero is not None:
        wide = wide - x_zero.cast(dtypes.int32).reshape(())
    if w_zero is not None:
        taps = taps - _channels(w_zero.cast(dtypes.int32), weight.ndim - 1)
    return convolved(call, wide, taps, None).cast(dtypes.int32)


@operator("QLinearConv")
def q_linear_conv(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    weight: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
) -> Any:
    """A convolution of quantised numbers, quantised; the bias has the scale of the products."""
    total = _whole_convolution(call, x, weight, x_zero, w_zero)
    rank = weight.ndim - 2
    if bias is not None:
        total = total + _channels(bias, rank)
    factor = y_scale.cast(dtypes.float32) / (x_scale * _channels(w_scale, rank))
    return quantised(
        total.cast(dtypes.float32), factor, y_zero.cast(dtypes.float32), number_of(y_zero)
    )

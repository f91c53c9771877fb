"""Products of quantised numbers as sums over their codes, which machines have an instruction for.

(a - a_zero) @ (b - b_zero) is a @ b less what the zero points add: a sum over the rows of b times
a_zero, and the same the other way. Where b is a weight its sum is computed before a run. All of it
is exact in int32, which wraps: only the result itself has to be within it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import luminal as lm
from luminal.base import dtypes
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call
from luminal.shape.expression import Expression

LONGEST = 1 << 15
"""Products of which the sum is within int32 for all codes of eight bits."""
BYTES = (dtypes.int8, dtypes.uint8)


class Codes(NamedTuple):
    """What a tensor was before: (codes - zero) * scale, of each slice along an axis its own."""

    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    axis: int | None


def note(call: Call, x: Tensor, codes: Tensor, scale: Tensor, zero: Tensor | None) -> None:
    """Remembers what x was dequantised of, so that products of it can be those of the codes."""
    # Only what instructions for bytes take: other codes would be summed in int32 by plain products,
    # which are slower than floats.
    if codes.dtype not in BYTES or x.dtype is not dtypes.float32 or scale.ndim > 1:
        return
    if call.attribute("block_size", 0):
        return
    one = scale.ndim == 0 or scale.shape == (1,)
    axis = None if one else call.axis(1, x.ndim)
    if zero is not None:
        literal = call.translation.literal(zero)
        zero = None if literal is not None and not literal.any() else zero.cast(dtypes.int32)
    if codes.dtype is dtypes.uint8 and call.translation.literal(codes) is not None:
        # a weight: signed, it can be a factor with codes of any sign
        codes = (codes.cast(dtypes.int32) - 128).cast(dtypes.int8)
        zero = codes.graph.constant(np.int32(-128)) if zero is None else zero - 128
    if one:
        scale, zero = scale.reshape(()), None if zero is None else zero.reshape(())
    call.translation.codes[x.value] = Codes(codes, scale, zero, axis)


def turned(call: Call, x: Tensor) -> Tensor:
    """x.mT, of which the codes are still known."""
    transposed, codes = x.mT, call.translation.codes.get(x.value)
    if codes is not None and x.ndim == 2:
        axis = None if codes.axis is None else 1 - codes.axis
        call.translation.codes[transposed.value] = codes._replace(codes=codes.codes.mT, axis=axis)
    return transposed


def product(call: Call, a: Tensor, b: Tensor) -> Tensor | None:
    """a @ b by their codes; None where these are not known, or of scales that do not factor out."""
    left, right = (call.translation.codes.get(x.value) for x in (a, b))
    if left is None or right is None or min(a.ndim, b.ndim) < 2:
        return None
    # A scale factors out of a sum only where it is the same for all of the sum's elements: never
    # along the axis that is summed.
    if left.axis is not None or right.axis not in (None, b.ndim - 1):
        return None
    if not _is_dot(left.codes, right.codes, a.extents[-1]):
        return None
    total = whole_product(left.codes, left.zero, right.codes, right.zero)
    numbers: Tensor = total.cast(dtypes.float32) * (left.scale * right.scale)
    return numbers


def _is_dot(a: Tensor, b: Tensor, count: Expression) -> bool:
    """Instructions take signed bytes for one factor, and sums that are not too long."""
    signed = dtypes.int8 in (a.dtype, b.dtype)
    return signed and count.is_const and count.value <= LONGEST


def whole_product(a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None) -> Tensor:
    """(a - a_zero) @ (b - b_zero) in int32; the zero points broadcast to a column and a row."""
    left, right = a.cast(dtypes.int32), b.cast(dtypes.int32)
    total = lm.matmul(left, right)
    if a_zero is not None:
        total = total - a_zero * right.sum(-2, True)
    if b_zero is not None:
        total = total - b_zero * left.sum(-1, True)
    if a_zero is not None and b_zero is not None:
        total = total + a_zero * b_zero * a.graph.constant(a.extents[-1]).cast(dtypes.int32)
    return total.cast(dtypes.int32)


def pointwise_convolution(
    call: Call, x: Tensor, weight: Tensor, bias: Tensor | None, steps: Any
) -> Tensor | None:
    """The convolution with windows of one element and without padding by codes; None as `product`.

    Wider windows are not packed as instructions for bytes take them: sums of floats are faster.
    """
    left, right = (call.translation.codes.get(tensor.value) for tensor in (x, weight))
    if left is None or right is None or left.axis is not None or right.axis not in (None, 0):
        return None
    if right.zero is not None or not _is_dot(left.codes, right.codes, weight.extents[1]):
        return None
    taps = right.codes.cast(dtypes.int32)
    total = lm.conv2d(left.codes.cast(dtypes.int32), taps, None, steps).cast(dtypes.int32)
    if left.zero is not None:
        total = total - left.zero * taps.sum((1, 2, 3)).cast(dtypes.int32).reshape(-1, 1, 1)
    scale = left.scale * (right.scale if right.axis is None else right.scale.reshape(-1, 1, 1))
    numbers: Tensor = total.cast(dtypes.float32) * scale
    return numbers if bias is None else numbers + bias.reshape(-1, 1, 1)

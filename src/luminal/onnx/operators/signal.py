"""Fourier transforms, as products with matrices: complex numbers are a last dim of two."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import luminal as lm
from luminal.frontend.tensor import Tensor
from luminal.onnx.budget import check_table
from luminal.onnx.call import Call, ints_of
from luminal.onnx.errors import OnnxError
from luminal.onnx.operators.shapes import extent
from luminal.onnx.table import operator
from luminal.onnx.values import Array, dtype_of_number

LONG = 1 << 22  # numbers of a table, above which a transform takes two smaller ones


@operator("DFT", known_inputs=(1, 2))
def dft(call: Call, x: Tensor, length: Array | None = None, axis: Array | None = None) -> Any:
    """The discrete Fourier transform along an axis, inverse or one-sided on request."""
    place = call.attribute("axis", 1) if axis is None else ints_of(axis)[0]
    if call.version >= 20 and axis is None:
        place = -2
    place = call.place(place, x.ndim)
    inverse, one_sided = (bool(call.attribute(name, 0)) for name in ("inverse", "onesided"))
    if place == x.ndim - 1:
        raise OnnxError("the last dim holds real and imaginary parts; the axis must be another")
    there = extent(x, place)
    default = 2 * (there - 1) if inverse and one_sided else there
    count = default if length is None else ints_of(length)[0]
    if count < 1:
        raise OnnxError(f"a transform of {count} samples; it takes 1 or more")
    x = x.narrow(place, 0, min(count, there)).movedim(place, -2)
    if one_sided and inverse:
        return _real_inverse(call, x, count).movedim(-2, place)
    return _transformed(call, x, count, inverse, one_sided).movedim(-2, place)


def _matrices(call: Call, count: int, rows: int, columns: int, inverse: bool, dtype: Any) -> Any:
    """cos and sin of 2 pi j k / count, for `rows` results of `columns` elements."""
    check_table(rows, columns)
    # Reduced while it is an integer: the angle of a large product would lose its digits.
    turns = np.outer(np.arange(rows), np.arange(columns)) % count
    angle = 2 * np.pi * turns / count * (1 if inverse else -1)
    scale = 1 / count if inverse else 1.0
    return [call.constant(f(angle) * scale, dtype) for f in (np.cos, np.sin)]


def _transformed(call: Call, x: Tensor, count: int, inverse: bool, one_sided: bool) -> Tensor:
    """(..., elements, 1 or 2) to (..., results, 2)."""
    rows = count // 2 + 1 if one_sided else count
    columns = _columns(count)
    # As a product with a table a transform is one kernel of full speed, and short ones are best so.
    if rows * extent(x, -2) > LONG and columns > 1:
        return _in_two_steps(call, x, count // columns, columns, inverse).narrow(-2, 0, rows)
    cos, sin = _matrices(call, count, rows, extent(x, -2), inverse, x.dtype)
    real = x.narrow(-1, 0, 1)
    # Real input has no imaginary part: half of the products are left out.
    if x.shape[-1] == 1:
        return lm.cat([cos @ real, sin @ real], -1)
    imaginary = x.narrow(-1, 1, 1)
    return lm.cat([cos @ real - sin @ imaginary, sin @ real + cos @ imaginary], -1)


def _columns(count: int) -> int:
    """The greatest divisor that is no more than the root."""
    return next(n for n in range(math.isqrt(count), 0, -1) if count % n == 0)


def _in_two_steps(call: Call, x: Tensor, rows: int, columns: int, inverse: bool) -> Tensor:
    """Elements in `rows` of `columns`: transforms along the columns, times turns, then along the
    rows, with tables of rows^2 and columns^2 instead of their product's square (Cooley and Tukey,
    Mathematics of Computation 19, 1965). Result k1 + k2 * rows lies at (k1, k2).
    """
    count = rows * columns
    x = lm.pad(x, (0, 0, 0, count - extent(x, -2)))
    shape = *x.shape[:-2], rows, columns
    parts = [x.narrow(-1, k, 1).reshape(*shape) for k in range(extent(x, -1))]
    cos, sin = _matrices(call, rows, rows, rows, inverse, x.dtype)
    real, imaginary = cos @ parts[0], sin @ parts[0]
    if len(parts) == 2:
        real, imaginary = real - sin @ parts[1], imaginary + cos @ parts[1]
    angle = 2 * np.pi / count * np.outer(np.arange(rows), np.arange(columns))
    c, s = (call.constant(f(angle if inverse else -angle), x.dtype) for f in (np.cos, np.sin))
    real, imaginary = real * c - imaginary * s, real * s + imaginary * c
    cos, sin = _matrices(call, columns, columns, columns, inverse, x.dtype)
    both = real @ cos - imaginary @ sin, real @ sin + imaginary @ cos
    return lm.cat([y.transpose(-1, -2).reshape(*x.shape[:-2], count, 1) for y in both], -1)


def _real_inverse(call: Call, x: Tensor, count: int) -> Any:
    """Real numbers of the first half of a transform, whose rest mirrors it."""
    half = count // 2 + 1
    x = x.narrow(-2, 0, min(half, extent(x, -2)))
    cos, sin = _matrices(call, count, count, extent(x, -2), True, x.dtype)
    twice = np.full(extent(x, -2), 2.0)
    # The first and, of an even count, the middle one have no mirror image.
    twice[0] = 1
    if count % 2 == 0 and extent(x, -2) == half:
        twice[-1] = 1
    weight = call.constant(twice, x.dtype).unsqueeze(-1)
    return cos @ (x.narrow(-1, 0, 1) * weight) - sin @ (x.narrow(-1, 1, 1) * weight)


@operator("BlackmanWindow", "HammingWindow", "HannWindow", known_inputs=(0,))
def window(call: Call, size: Array) -> Any:
    """Makes a window by ONNX's definition of it."""
    if ints_of(size)[0] < 0:
        raise OnnxError(f"a window of {ints_of(size)[0]} samples; it takes 0 or more")
    return call.defined()


@operator("STFT", known_inputs=(1, 3))
def stft(
    call: Call,
    x: Tensor,
    step: Array,
    window: Tensor | None = None,
    length: Array | None = None,
) -> Tensor:
    """Transforms of frames, each times a window."""
    if length is None and window is None:
        raise OnnxError("STFT takes a window or the length of frames")
    size = extent(window, 0) if length is None else ints_of(length)[0]  # type: ignore[arg-type]
    hop = ints_of(step)[0]
    if hop < 1 or not 1 <= size <= extent(x, 1):
        raise OnnxError(
            f"frames of {size} by steps of {hop} in {extent(x, 1)} samples; steps are 1 or more, "
            "and frames lie within the samples"
        )
    count = (extent(x, 1) - size) // hop + 1
    check_table(count, size)
    starts = np.arange(count)[:, None] * hop + np.arange(size)[None]
    frames = x.take(call.graph.constant(starts), 1)  # (batch, frames, size, 1 or 2)
    if window is not None:
        frames = frames * window.unsqueeze(-1)
    return _transformed(call, frames, size, False, bool(call.attribute("onesided", 1)))


@operator("MelWeightMatrix")
def mel_weight_matrix(call: Call, *scalars: Tensor) -> Tensor:
    """Triangles at even distances on the mel scale: (bins, mels)."""
    numbers = [call.read(x).reshape(-1)[0].item() for x in scalars]
    mels, size, rate, low, high = numbers
    if min(low, high) <= -700:
        raise OnnxError(f"edges of {low} and {high} Hz; the mel scale begins at -700")
    dtype = dtype_of_number(call.attribute("output_datatype", 1))
    bins = size // 2 + 1
    check_table(bins, mels)
    ends = [2595 * np.log10(1 + f / 700) for f in (low, high)]
    step = (ends[1] - ends[0]) / (mels + 2)
    edges = 700 * (10 ** ((np.arange(mels + 2) * step + ends[0]) / 2595) - 1)
    places = (((size + 1) * edges) // rate).astype(np.int64)
    matrix = np.zeros((bins, mels))
    for k in range(mels):
        left, top, right = places[k : k + 3]
        if top == left:
            matrix[top, k] = 1
        else:
            rising = np.arange(left, top + 1)
            matrix[rising, k] = (rising - left) / (top - left)
        if right > top:
            falling = np.arange(top, right)
            matrix[falling, k] = (right - falling) / (right - top)
    return call.constant(matrix, dtype)

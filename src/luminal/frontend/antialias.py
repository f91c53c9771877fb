"""Resampling that averages: where a picture shrinks, each pixel is a sum over all that it covers.

The kernel is stretched by the step between pixels, cut off at the borders, and its weights are
divided by their sum, as PyTorch and Pillow do. Sizes are literal, so the weights are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from luminal import dtypes
from luminal.errors import ShapeError
from luminal.frontend.handle import describe, in_float
from luminal.frontend.indexing import take
from luminal.frontend.movement import reshape
from luminal.frontend.reduce import sum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Array = np.ndarray[Any, Any]


class Filter(NamedTuple):
    """A kernel that is 0 from `reach` on."""

    reach: int
    weight: Callable[[Array], Array]


def _cubic(distance: Array) -> Array:
    """Keys' convolution (1981) with his own parameter, -1/2."""
    d = np.abs(distance)
    near = (1.5 * d - 2.5) * d * d + 1
    far = ((-0.5 * d + 2.5) * d - 4) * d + 2
    return np.where(d < 1, near, np.where(d < 2, far, 0))


FILTERS = {
    "bilinear": Filter(1, lambda distance: np.maximum(1 - np.abs(distance), 0)),
    "bicubic": Filter(2, _cubic),
}


def matrix(extent: int, count: int, mode: str, step: float) -> Array:
    """(count, extent): what each of `count` results takes of `extent` elements, `step` apart. A dim
    that keeps its size is copied, whatever the step.
    """
    if extent == count:
        return np.eye(extent)
    kernel = FILTERS[mode]
    stretch = max(step, 1.0)
    center = step * (np.arange(count) + 0.5)
    start = np.maximum((center - kernel.reach * stretch + 0.5).astype(np.int64), 0)
    end = np.minimum((center + kernel.reach * stretch + 0.5).astype(np.int64), extent)
    at = np.arange(extent)
    weights = kernel.weight((at - center[:, None] + 0.5) / stretch)
    weights = np.where((at >= start[:, None]) & (at < end[:, None]), weights, 0)
    shares: Array = weights / weights.sum(1, keepdims=True)
    return shares


def step_between(extent: int, count: int, align_corners: bool, scale: float | None) -> float:
    """How far apart the results lie in the source: by their number, or by a scale that is given."""
    if align_corners:
        return (extent - 1) / (count - 1) if count > 1 else 0.0
    return 1 / scale if scale else extent / count


@in_float
def by_matrices(x: Tensor, matrices: Sequence[Array]) -> Tensor:
    """x with its last dims multiplied by constant matrices, mostly of zeros; the last dim first."""
    for axis, each in _from_the_last(x, matrices):
        x = _along(x, axis, each.astype(x.dtype.numpy))
    return x


def bytes_by_matrices(x: Tensor, matrices: Sequence[Array]) -> Tensor:
    """The same of uint8, in the arithmetic of PyTorch's and Pillow's kernels: weights are whole
    multiples of a power of 2 within 16 bits, and each dim's results are bytes.
    """
    for axis, each in _from_the_last(x, matrices):
        shift = next(k for k in range(22, -1, -1) if k == 0 or each.max() * 2**k + 0.5 < 2**15)
        weights = np.trunc(each * 2**shift + np.copysign(0.5, each)).astype(np.int32)
        total = _along(x.cast(dtypes.int32), axis, weights)
        x = ((total + 2 ** (shift - 1)) >> shift).clamp(0, 255)
    return x.cast(dtypes.uint8)


def _from_the_last(x: Tensor, matrices: Sequence[Array]) -> list[tuple[int, Array]]:
    """Axes with their matrices."""
    return list(enumerate(matrices, x.ndim - len(matrices)))[::-1]


def _along(x: Tensor, axis: int, weights: Array) -> Tensor:
    """Each result reads as many neighbours as the fullest row has."""
    count, extent = weights.shape
    start = np.argmax(weights != 0, 1)
    end = extent - np.argmax(weights[:, ::-1] != 0, 1)
    taps = np.arange(max(int((end - start).max(initial=1)), 1))
    places = start[:, None] + taps
    held = np.take_along_axis(weights, np.minimum(places, extent - 1), 1)
    factors = x.graph.constant(np.where(places < extent, held, 0).astype(weights.dtype))
    factors = reshape(factors, count, len(taps), *(1,) * (x.ndim - axis - 1))
    read = take(x, np.minimum(places, extent - 1), axis) * factors
    return sum(read, axis + 1, dtype=x.dtype)


def antialiased(
    x: Tensor, sizes: Sequence[Any], mode: str, align_corners: bool,
    scales: Sequence[float | None] = (None, None),
) -> Tensor:  # fmt: skip
    """x (batch, channels, height, width) resized to `sizes`, every pixel an average; uint8
    stays uint8.
    """
    extents = x.shape[2:]
    if mode not in FILTERS or x.ndim != 4:
        raise ShapeError(
            f"interpolate: antialias takes bilinear and bicubic of (batch, channels, height, "
            f"width); got {mode} of {describe(x)}"
        )
    literal = [n for n in (*extents, *sizes) if isinstance(n, int)]
    if len(literal) < 4:
        raise ShapeError(f"interpolate: antialias takes literal sizes; {describe(x)} to {sizes}")
    if not all(n > 0 for n in literal):
        raise ShapeError(f"interpolate: antialias of no pixels: {describe(x)} to {sizes}")
    rows = [
        matrix(n, m, mode, step_between(n, m, align_corners, scale))
        for n, m, scale in zip(literal[:2], literal[2:], scales, strict=True)
    ]
    return bytes_by_matrices(x, rows) if x.dtype is dtypes.uint8 else by_matrices(x, rows)

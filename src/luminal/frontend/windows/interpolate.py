"""Resampling of spatial dims: nearest, linear, cubic and area interpolation, with antialiasing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import ShapeError
from luminal.base.records import dataclass
from luminal.frontend.creation import position
from luminal.frontend.handle import Extent, along, describe, in_float
from luminal.frontend.movement.indexing import take
from luminal.frontend.movement.views import reshape, view_of
from luminal.frontend.reduce.reductions import sum
from luminal.frontend.windows.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
)
from luminal.shape import view as views
from luminal.shape.expression import Expression, const, maximum, minimum

if TYPE_CHECKING:
    from luminal.frontend.graph import Recorder
    from luminal.frontend.tensor import Tensor


Mode: TypeAlias = Literal[
    "nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"
]
Size: TypeAlias = Extent | Sequence[Extent]
Scale: TypeAlias = float | Sequence[float]

_RANKS = {"linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,)}
_CUBIC = -0.75  # the cubic kernel's free parameter, PyTorch's (Keys 1981 takes -0.5)


def interpolate(
    x: Tensor,
    size: Size | None = None,
    scale_factor: Scale | None = None,
    mode: Mode = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """x (batch, channels, *spatial) with its one to three spatial dims resized, as PyTorch.

    Either `size` or `scale_factor`, for all dims or each. `align_corners` (linear, cubic) makes the
    outermost elements coincide. With `antialias` (bilinear, bicubic) pixels of a smaller picture
    are averages. Integers stay integers with nearest, else give float32.
    Views, their products with weights, and sums; raises ShapeError for options that do not fit.
    """
    _check_mode(x, mode, align_corners)
    dims = _dims(x, size, scale_factor, bool(recompute_scale_factor))
    if antialias:
        counts = [dim.count.value if dim.count.is_const else dim.count for dim in dims]
        scale_kept = None if recompute_scale_factor else scale_factor
        scales = scale_kept if isinstance(scale_kept, Sequence) else [scale_kept] * len(dims)
        return antialiased(x, counts, mode, bool(align_corners), scales)
    if mode == "area":
        pool = (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[len(dims) - 1]
        return pool(x, [dim.count for dim in dims])
    if mode in ("nearest", "nearest-exact"):
        return _nearest(x, dims, centred=mode == "nearest-exact")
    lines = [dim.line(bool(align_corners)) for dim in dims]
    return _blended(x, lines, _cubic if mode == "bicubic" else _linear)


def upsample(
    x: Tensor,
    size: Size | None = None,
    scale_factor: Scale | None = None,
    mode: Mode = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its older name."""
    return interpolate(x, size, scale_factor, mode, align_corners)


def upsample_nearest(
    x: Tensor, size: Size | None = None, scale_factor: Scale | None = None
) -> Tensor:
    """`interpolate` by the nearest element."""
    return interpolate(x, size, scale_factor, "nearest")


def upsample_bilinear(
    x: Tensor, size: Size | None = None, scale_factor: Scale | None = None
) -> Tensor:
    """`interpolate` of two dims by straight lines, corners aligned."""
    return interpolate(x, size, scale_factor, "bilinear", True)


def _check_mode(x: Tensor, mode: str, align_corners: bool | None) -> None:
    rank = x.ndim - 2
    if mode in ("nearest", "nearest-exact", "area"):
        if align_corners is not None:
            raise ShapeError(f"interpolate: {mode} takes no align_corners; leave it out")
        allowed: tuple[int, ...] = (1, 2, 3)
    elif mode in _RANKS:
        allowed = _RANKS[mode]
    else:
        modes = ", ".join(("nearest", "nearest-exact", *_RANKS, "area"))
        raise ShapeError(f"interpolate: mode {mode!r}; give one of {modes}")
    if rank not in allowed:
        ranks = " or ".join(map(str, allowed))
        raise ShapeError(
            f"interpolate: {mode} takes (batch, channels and {ranks} more dims); got {describe(x)}"
        )


# --- extents and scales ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One dim: result position o reads `numerator(o) / denominator` of a source of `extent`."""

    extent: Expression
    count: Expression
    numerator: Callable[[Expression], Expression]
    denominator: Expression


@dataclass(frozen=True, slots=True)
class _Dim:
    """One spatial dim: extents of source and result, and the step between source positions."""

    extent: Expression
    count: Expression
    step: tuple[Expression, Expression]  # numerator and denominator

    def line(self, align_corners: bool) -> Line:
        """Positions of centres, or from corner to corner."""
        if align_corners:
            # Positions are fractions of ints, never floats: floor and fraction of them are exact,
            # of dims too.
            last = maximum(self.count - 1, 1)  # a single element reads the first
            return Line(self.extent, self.count, lambda o: o * (self.extent - 1), last)
        up, down = self.step
        return Line(self.extent, self.count, lambda o: (2 * o + 1) * up - down, 2 * down)


def _dims(x: Tensor, size: Size | None, scale_factor: Scale | None, recompute: bool) -> list[_Dim]:
    extents = x.extents[2:]
    rank = len(extents)
    if (size is None) == (scale_factor is None):
        raise ShapeError("interpolate: give either size or scale_factor")
    if size is not None:
        sizes = [size] * rank if isinstance(size, int | str | Expression) else list(size)
        _check_count("size", sizes, rank)
        counts = [x.graph.extent(n) for n in sizes]
        for k, n in enumerate(counts):
            x.graph.require(n >= 1, f"interpolate: size {k}")
        return [_Dim(n, m, (n, m)) for n, m in zip(extents, counts, strict=True)]
    assert scale_factor is not None
    scales = [scale_factor] * rank if isinstance(scale_factor, int | float) else list(scale_factor)
    _check_count("scale_factor", scales, rank)
    return [_scaled(n, scale, recompute) for n, scale in zip(extents, scales, strict=True)]


def _check_count(name: str, sizes: Sequence[object], rank: int) -> None:
    if len(sizes) != rank:
        raise ShapeError(f"interpolate: {name} has {len(sizes)} entries for {rank} spatial dims")


def _scaled(extent: Expression, scale: float, recompute: bool) -> _Dim:
    """A dim of floor(extent * scale) elements."""
    # 1.1 is no binary fraction; as 11/10 it gives whole Expressions that views can hold.
    ratio = Fraction(scale).limit_denominator(2**20)
    if ratio <= 0:
        raise ShapeError(f"interpolate: scale_factor is {scale}; give a factor above 0")
    if extent.is_const:
        count = const(floor(extent.value * scale))
    else:
        count = extent * ratio.numerator // ratio.denominator
    if recompute:
        return _Dim(extent, count, (extent, count))
    return _Dim(extent, count, (const(ratio.denominator), const(ratio.numerator)))


# --- nearest --------------------------------------------------------------------------------------


def _nearest(x: Tensor, dims: Sequence[_Dim], *, centred: bool) -> Tensor:
    """Each element the source's at floor(o * step), or at floor((o + 1/2) * step)."""
    for k, dim in enumerate(dims, 2):
        up, down = dim.step
        o = along(k, dim.count)
        at = (2 * o + 1) * up // (2 * down) if centred else o * up // down
        positions = _rounded_positions(dim, centred)
        if positions is not None and not _has_positions(minimum(at, dim.extent - 1), o, positions):
            x = take(x, x.graph.constant(positions), k)
        else:
            x = _read(x, k, dim.count, minimum(at, dim.extent - 1))
    return x


# Exact integer quotients can stand in views and take dims. PyTorch rounds positions in float32, and
# at some sizes takes another pixel for that; there the rounded positions are gathered.
def _rounded_positions(dim: _Dim, centred: bool) -> np.ndarray[Any, Any] | None:
    """The positions that PyTorch computes in float32; None where extents are symbolic."""
    if not (dim.extent.is_const and dim.count.is_const):
        return None
    up, down = dim.step
    step = np.float32(up.value / down.value) if down.value else np.float32(0)
    o = np.arange(dim.count.value, dtype=np.float32) + np.float32(0.5 if centred else 0)
    positions: np.ndarray[Any, Any] = np.floor(o * step).astype(np.int64)
    return positions.clip(max=dim.extent.value - 1)


def _has_positions(at: Expression, o: Expression, wanted: np.ndarray[Any, Any]) -> bool:
    """Does the index Expression give these positions?"""
    names = [symbol.name for symbol in at.symbols()]
    if not names:
        return bool((wanted == at.value).all())
    values = at.evaluate({names[0]: np.arange(len(wanted))})
    return bool(np.array_equal(values, wanted))


def _read(x: Tensor, dim: int, count: Expression, at: Expression) -> Tensor:
    """x with `dim` read at an Expression of `along(dim, count)`."""
    shape = (*x.extents[:dim], count, *x.extents[dim + 1 :])
    entries = [along(k, n) for k, n in enumerate(shape)]
    entries[dim] = at
    return view_of(x, views.made(x.extents, shape, entries))


# --- blends ---------------------------------------------------------------------------------------

Taps: TypeAlias = "list[tuple[Expression, Tensor]]"
"""Source positions with the weight of each, of shape (count,)."""


@in_float
def _blended(
    x: Tensor, lines: Sequence[Line], taps: Callable[[Recorder, Line, int, DType], Taps]
) -> Tensor:
    """Along one dim after the other the sum of the taps times their weights."""
    # Dim by dim: 2 + 2 taps instead of 2 * 2, and 4 + 4 instead of 16.
    for dim in range(x.ndim - 1, 1, -1):
        line = lines[dim - 2]
        total: Tensor | None = None
        for at, weight in taps(x.graph, line, dim, x.dtype):
            behind = (const(1),) * (x.ndim - dim - 1)
            part = _read(x, dim, line.count, at) * reshape(weight, line.count, *behind)
            total = part if total is None else total + part
        assert total is not None
        x = total
    return x


def _fraction(graph: Recorder, line: Line, numerator: Expression, dtype: DType) -> Tensor:
    """The fractional part of numerator / denominator, of shape (count,)."""
    remainder = position(graph, numerator % line.denominator, (line.count,), dtype)
    divisor = line.denominator.value if line.denominator.is_const else line.denominator
    return remainder / divisor


def _linear(graph: Recorder, line: Line, dim: int, dtype: DType) -> Taps:
    """The two neighbours; positions before the first element read the first."""
    last = line.extent - 1
    low = maximum(line.numerator(along(dim, line.count)), 0) // line.denominator
    first = maximum(line.numerator(along(0, line.count)), 0)
    fraction = _fraction(graph, line, first, dtype)
    return [(minimum(low, last), 1 - fraction), (minimum(low + 1, last), fraction)]


def _cubic(graph: Recorder, line: Line, dim: int, dtype: DType) -> Taps:
    """Four neighbours with the weights of the cubic convolution kernel; edges repeat."""
    low = line.numerator(along(dim, line.count)) // line.denominator
    fraction = _fraction(graph, line, line.numerator(along(0, line.count)), dtype)
    weights = cubic_weights(fraction)
    places = (minimum(maximum(low + k, 0), line.extent - 1) for k in (-1, 0, 1, 2))
    return list(zip(places, weights, strict=True))


def cubic_weights(t: Tensor) -> list[Tensor]:
    """Weights of the neighbours at -1, 0, 1, 2 of a point at t in [0, 1). Keys, 1981."""
    a = _CUBIC

    def near(d: Tensor) -> Tensor:  # |d| <= 1
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:  # 1 <= |d| <= 2
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


# --- antialias ------------------------------------------------------------------------------------
#
# The kernel is stretched by the step between pixels, cut off at the borders, and its weights are
# divided by their sum, as PyTorch and Pillow do. Sizes are literal, so the weights are constants.


Array = np.ndarray[Any, Any]


class Filter(NamedTuple):
    """A kernel that is 0 from `reach` on."""

    reach: int
    weight: Callable[[Array], Array]


def _cubic_filter(distance: Array) -> Array:
    """Keys' convolution (1981) with his own parameter, -1/2."""
    d = np.abs(distance)
    near = (1.5 * d - 2.5) * d * d + 1
    far = ((-0.5 * d + 2.5) * d - 4) * d + 2
    return np.where(d < 1, near, np.where(d < 2, far, 0))


FILTERS = {
    "bilinear": Filter(1, lambda distance: np.maximum(1 - np.abs(distance), 0)),
    "bicubic": Filter(2, _cubic_filter),
}


def matrix(extent: int, count: int, mode: str, step: float) -> Array:
    """(count, extent): what each of `count` results takes of `extent` elements, `step` apart. A dim
    that keeps its size is copied, whatever the step.
    """
    if extent == count:
        return np.eye(extent)
    kernel = FILTERS[mode]
    # Only when a picture shrinks: the kernel then covers as many pixels as one result stands for.
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
    for axis, weights in _from_the_last(x, matrices):
        x = _along(x, axis, weights.astype(x.dtype.numpy))
    return x


def bytes_by_matrices(x: Tensor, matrices: Sequence[Array]) -> Tensor:
    """x of uint8 with its last dims multiplied by constant matrices, in the arithmetic of PyTorch's
    and Pillow's kernels: weights are whole multiples of a power of 2 within 16 bits, and each dim's
    results are bytes.
    """
    for axis, rows in _from_the_last(x, matrices):
        # The greatest precision whose largest weight fits 16 bits, as Pillow chooses it.
        shift = next(k for k in range(22, -1, -1) if k == 0 or rows.max() * 2**k + 0.5 < 2**15)
        weights = np.trunc(rows * 2**shift + np.copysign(0.5, rows)).astype(np.int32)
        total = _along(x.cast(dtypes.int32), axis, weights)
        x = ((total + 2 ** (shift - 1)) >> shift).clamp(0, 255)
    return x.cast(dtypes.uint8)


def _from_the_last(x: Tensor, matrices: Sequence[Array]) -> list[tuple[int, Array]]:
    """Axes with their matrices."""
    return list(enumerate(matrices, x.ndim - len(matrices)))[::-1]


def _along(x: Tensor, axis: int, weights: Array) -> Tensor:
    """Each result reads as many neighbours as the fullest row has."""
    count, extent = weights.shape
    # A row has few weights that are not 0, side by side: those are gathered, not the whole row.
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

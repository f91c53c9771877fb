"""Pooling over windows, of a given size or a given number: maximum, mean and power mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.creation import position
from luminal.frontend.handle import Extent, along, in_float
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.reduce.reductions import Extreme, amax
from luminal.frontend.reduce.reductions import sum as sum_over
from luminal.frontend.windows.unfold import (
    Ints,
    Windows,
    per_dim,
    require_fits,
    sliding,
    window_view,
    windowed,
    with_batch,
)
from luminal.shape.expression import Expression, ceil_div, const, maximum, minimum, product_of

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


# --- maximum --------------------------------------------------------------------------------------


def max_pool1d(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of each window of the last dim; see `max_pool2d`."""
    windows = _windows("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode)
    return max_of_windows(x, windows, return_indices)


def max_pool2d(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of each window of the last two dims, NaN if there is one; as PyTorch.

    `stride` is the kernel by default; padding never wins. With `return_indices` a pair (values,
    indices): where in the plane, flattened, each was found first, or the last NaN (int64).
    Max of Select(inside, x). Raises ShapeError where no window fits or the padding exceeds half of
    the kernel.
    """
    windows = _windows("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode)
    return max_of_windows(x, windows, return_indices)


def max_pool3d(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of each window of the last three dims; see `max_pool2d`."""
    windows = _windows("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode)
    return max_of_windows(x, windows, return_indices)


def max_of_windows(x: Tensor, windows: Sequence[Windows], return_indices: bool) -> Any:
    """The greatest of each window; (values, indices) on request."""
    taps = windowed(x, windows, x.dtype.lowest)
    over = tuple(range(-len(windows), 0))
    greatest = _greatest(taps, over)
    if not return_indices:
        return greatest
    view = window_view(x.extents, windows)
    hit = taps == greatest.unsqueeze(over)
    inside = position(x.graph, view.domain, view.shape, dtypes.bool_)
    # A plain argmax would count positions in the window; users want those of the plane.
    flat: Expression = const(0)
    for at, extent in zip(view.map[-len(windows) :], x.extents[-len(windows) :], strict=True):
        flat = flat * extent + at
    last = product_of(x.extents[-len(windows) :]) - 1
    first = where(hit & inside, position(x.graph, last - flat, view.shape, dtypes.int64), -1)
    if not x.dtype.is_float:
        return Extreme(greatest, last - amax(first, over))
    # the last NaN counts most: in PyTorch each one replaces the one before
    nan = position(x.graph, last + 1 + flat, view.shape, dtypes.int64)
    nan_position = amax(where((taps != taps) & inside, nan, first), over)
    return Extreme(
        greatest, where(nan_position > last, nan_position - last - 1, last - nan_position)
    )


def _greatest_derivative(g: Tensor, y: Tensor, taps: Tensor, over: tuple[int, ...]) -> Tensor:
    """The gradient goes to the first of equals."""
    shape = taps.extents[-len(over) :]
    number: Expression = const(0)
    for k, n in enumerate(shape, taps.ndim - len(over)):
        number = number * n + along(k, n)
    from_end = position(taps.graph, product_of(shape) - 1 - number, taps.extents, dtypes.int32)
    hit = (taps == y.unsqueeze(over)) | (taps != taps)
    first = amax(where(hit, from_end, -1), over)
    return where(from_end == first.unsqueeze(over), g.unsqueeze(over), 0)


@differentiated(_greatest_derivative)
def _greatest(taps: Tensor, over: tuple[int, ...]) -> Tensor:
    return amax(taps, over)


# --- means ----------------------------------------------------------------------------------------


def avg_pool1d(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of the last dim; see `avg_pool2d`."""
    windows = _windows("avg_pool1d", 1, x, kernel_size, stride, padding, 1, ceil_mode)
    border = padding if count_include_pad else 0
    return mean_of_windows(x, windows, per_dim("avg_pool1d", "padding", border, 1, 0))


def avg_pool2d(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of the last two dims; integers give float32.

    Padding counts as zeros unless `count_include_pad` is False; what `ceil_mode` adds behind it
    never counts. `divisor_override` divides instead. Sum(View(x)) / Iota(count).
    Raises ShapeError where no window fits or the padding exceeds half of the kernel.
    """
    windows = _windows("avg_pool2d", 2, x, kernel_size, stride, padding, 1, ceil_mode)
    border = per_dim("avg_pool2d", "padding", padding if count_include_pad else 0, 2, 0)
    return mean_of_windows(x, windows, border, divisor_override)


def avg_pool3d(
    x: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of the last three dims; see `avg_pool2d`."""
    windows = _windows("avg_pool3d", 3, x, kernel_size, stride, padding, 1, ceil_mode)
    border = per_dim("avg_pool3d", "padding", padding if count_include_pad else 0, 3, 0)
    return mean_of_windows(x, windows, border, divisor_override)


@in_float
def mean_of_windows(
    x: Tensor,
    windows: Sequence[Windows],
    border: Sequence[int],
    divisor: int | None = None,
) -> Tensor:
    """Each window's sum by how many of its taps lie in x widened by `border`, or by `divisor`."""
    if divisor == 0:
        raise ShapeError("avg_pool: divisor_override is 0; give another divisor")
    total = sum_over(windowed(x, windows), tuple(range(-len(windows), 0)))
    return total / (_counted(x, windows, border) if divisor is None else divisor)


def _counted(x: Tensor, windows: Sequence[Windows], border: Sequence[int]) -> Tensor:
    """How many taps of each window lie in x widened by `border`; taps stand side by side."""
    shape = tuple(window.count for window in windows)
    counts = []
    for k, (window, wide) in enumerate(zip(windows, border, strict=True)):
        # By ends, not by adding up ones: the count is an Expression, and costs the run nothing.
        first = window.at(along(k, window.count), const(0))
        stop = minimum(first + window.size, window.end(along(k, window.count)) + wide)
        counts.append(stop - maximum(first, -wide))
    return position(x.graph, product_of(counts), shape, x.dtype)


# --- power means ----------------------------------------------------------------------------------


def lp_pool1d(
    x: Tensor,
    norm_type: float,
    kernel_size: Ints,
    stride: Ints | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window of the last dim; see `lp_pool2d`."""
    windows = _windows("lp_pool1d", 1, x, kernel_size, stride, 0, 1, ceil_mode)
    return _power_mean(x, windows, norm_type)


def lp_pool2d(
    x: Tensor,
    norm_type: float,
    kernel_size: Ints,
    stride: Ints | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """(sum of x ** p) ** (1/p) over each window of the last two dims, as PyTorch.

    Of x, not of |x|: a negative sum gives NaN unless p is 1. Windows cut off by `ceil_mode` are
    scaled up to the kernel's size. p = inf and -inf are the greatest and the least |x|.
    """
    windows = _windows("lp_pool2d", 2, x, kernel_size, stride, 0, 1, ceil_mode)
    return _power_mean(x, windows, norm_type)


def lp_pool3d(
    x: Tensor,
    norm_type: float,
    kernel_size: Ints,
    stride: Ints | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window of the last three dims; see `lp_pool2d`."""
    windows = _windows("lp_pool3d", 3, x, kernel_size, stride, 0, 1, ceil_mode)
    return _power_mean(x, windows, norm_type)


@in_float
def _power_mean(x: Tensor, windows: Sequence[Windows], p: float) -> Tensor:
    if math.isinf(p):
        greatest: Tensor = max_of_windows(abs(x) if p > 0 else -abs(x), windows, False)
        return greatest if p > 0 else -greatest
    # Through the mean, so that a window cut off at the border counts as a whole one would.
    mean = mean_of_windows(x**p, windows, (0,) * len(windows))
    size = product_of(window.size for window in windows)
    return (mean * size) ** (1.0 / p)


# --- windows --------------------------------------------------------------------------------------


def _windows(
    what: str,
    rank: int,
    x: Tensor,
    kernel_size: Ints,
    stride: Ints | None,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> list[Windows]:
    """The windows over the last `rank` dims; raises ShapeError for options that do not fit."""
    with_batch(what, x, rank)
    kernel = per_dim(what, "kernel_size", kernel_size, rank)
    steps = kernel if stride in (None, (), []) else per_dim(what, "stride", stride, rank)
    pads = per_dim(what, "padding", padding, rank, 0)
    gaps = per_dim(what, "dilation", dilation, rank)
    if any(2 * p > k for p, k in zip(pads, kernel, strict=True)):
        raise ShapeError(f"{what}: padding {padding} exceeds half of the window {kernel}")
    windows = []
    for k in range(rank):
        dim = x.ndim - rank + k
        around = const(pads[k]), const(pads[k])
        beyond = steps[k] - 1 if ceil_mode else 0  # a last window may end behind the padding
        span = const(gaps[k] * (kernel[k] - 1) + 1)
        require_fits(what, x, dim, span, (around[0], around[1] + beyond))
        size = const(kernel[k])
        windows.append(sliding(x.extents[dim], size, steps[k], around, gaps[k], ceil=ceil_mode))
    return windows


# --- adaptive -------------------------------------------------------------------------------------
#
# Window o of n over an extent L reads positions floor(o * L / n) up to ceil((o + 1) * L / n).


Sizes: TypeAlias = Extent | Sequence[Extent | None] | None
"""How many windows: for all dims or for each; None keeps the extent."""


def adaptive_avg_pool1d(x: Tensor, output_size: Sizes) -> Tensor:
    """The means of `output_size` windows of the last dim; see `adaptive_avg_pool2d`."""
    return mean_of_windows(x, _adaptive("adaptive_avg_pool1d", 1, x, output_size), (0,))


def adaptive_avg_pool2d(x: Tensor, output_size: Sizes) -> Tensor:
    """The means of `output_size` windows of the last two dims, as PyTorch; None keeps an extent.

    Sum(View(x)) / Iota(count). Raises ShapeError for a size below 0.
    """
    return mean_of_windows(x, _adaptive("adaptive_avg_pool2d", 2, x, output_size), (0, 0))


def adaptive_avg_pool3d(x: Tensor, output_size: Sizes) -> Tensor:
    """The means of `output_size` windows of the last three dims; see `adaptive_avg_pool2d`."""
    return mean_of_windows(x, _adaptive("adaptive_avg_pool3d", 3, x, output_size), (0, 0, 0))


def adaptive_max_pool1d(x: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The greatest of each of `output_size` windows of the last dim; see `max_pool2d`."""
    return max_of_windows(x, _adaptive("adaptive_max_pool1d", 1, x, output_size), return_indices)


def adaptive_max_pool2d(x: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The greatest of each of `output_size` windows of the last two dims, NaN if there is one.

    With `return_indices` a pair (values, indices) as `max_pool2d`. Max of Select(inside, View(x)).
    """
    return max_of_windows(x, _adaptive("adaptive_max_pool2d", 2, x, output_size), return_indices)


def adaptive_max_pool3d(x: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The greatest of each of `output_size` windows of the last three dims; see `max_pool2d`."""
    return max_of_windows(x, _adaptive("adaptive_max_pool3d", 3, x, output_size), return_indices)


def _adaptive(what: str, rank: int, x: Tensor, output_size: Sizes) -> list[Windows]:
    with_batch(what, x, rank)
    if output_size is None or isinstance(output_size, int | str | Expression):
        sizes: tuple[Extent | None, ...] = (output_size,) * rank
    else:
        sizes = tuple(output_size)
    if len(sizes) != rank:
        raise ShapeError(f"{what}: output_size is {output_size}; give one size or {rank}")
    extents = x.extents[-rank:]
    counts = [
        n if size is None else x.graph.extent(size) for n, size in zip(extents, sizes, strict=True)
    ]
    for count in counts:
        if count.is_const and count.value < 0:
            raise ShapeError(f"{what}: output_size is {output_size}; give sizes of at least 0")
    return [_even(n, count) for n, count in zip(extents, counts, strict=True)]


def _even(extent: Expression, count: Expression) -> Windows:
    """`count` windows that cover `extent`; neighbours share a position where it does not divide."""
    size = _longest(extent, count)
    return Windows(
        count,
        size,
        lambda o, w: o * extent // count + w,
        lambda o: ceil_div((o + 1) * extent, count),
    )


def _longest(extent: Expression, count: Expression) -> Expression:
    """The most positions of a window; an upper bound where extents are symbolic."""
    whole = extent.exact_div(count)
    if whole is not None:
        return whole
    if not (extent.is_const and count.is_const):
        return ceil_div(extent, count) + 1
    n, windows = extent.value, count.value
    spans = [-(-(o + 1) * n // windows) - o * n // windows for o in range(windows)]
    return const(max(spans, default=0))

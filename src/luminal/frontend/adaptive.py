"""Adaptive pooling: the number of windows is given, they cover the dim evenly.

Window o of n over an extent L reads positions floor(o * L / n) up to ceil((o + 1) * L / n).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from luminal.errors import ShapeError
from luminal.frontend.handle import Extent
from luminal.frontend.pooling import max_of_windows, mean_of_windows
from luminal.frontend.windows import Windows, with_batch
from luminal.shape.expression import Expression, ceil_div, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Sizes: TypeAlias = Extent | Sequence[Extent | None] | None
"""How many windows: for all dims or for each; None keeps the extent."""


def adaptive_avg_pool1d(x: Tensor, output_size: Sizes) -> Tensor:
    """The means of `output_size` windows of the last dim; see `adaptive_avg_pool2d`."""
    return mean_of_windows(x, _windows("adaptive_avg_pool1d", 1, x, output_size), (0,))


def adaptive_avg_pool2d(x: Tensor, output_size: Sizes) -> Tensor:
    """The means of `output_size` windows of the last two dims, as PyTorch; None keeps an extent.

    Sum(View(x)) / Iota(count). Raises ShapeError for a size below 0.
    """
    return mean_of_windows(x, _windows("adaptive_avg_pool2d", 2, x, output_size), (0, 0))


def adaptive_avg_pool3d(x: Tensor, output_size: Sizes) -> Tensor:
    """The means of `output_size` windows of the last three dims; see `adaptive_avg_pool2d`."""
    return mean_of_windows(x, _windows("adaptive_avg_pool3d", 3, x, output_size), (0, 0, 0))


def adaptive_max_pool1d(x: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The greatest of each of `output_size` windows of the last dim; see `max_pool2d`."""
    return max_of_windows(x, _windows("adaptive_max_pool1d", 1, x, output_size), return_indices)


def adaptive_max_pool2d(x: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The greatest of each of `output_size` windows of the last two dims, NaN if there is one.

    With `return_indices` a pair (values, indices) as `max_pool2d`. Max of Select(inside, View(x)).
    """
    return max_of_windows(x, _windows("adaptive_max_pool2d", 2, x, output_size), return_indices)


def adaptive_max_pool3d(x: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The greatest of each of `output_size` windows of the last three dims; see `max_pool2d`."""
    return max_of_windows(x, _windows("adaptive_max_pool3d", 3, x, output_size), return_indices)


def _windows(what: str, rank: int, x: Tensor, output_size: Sizes) -> list[Windows]:
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

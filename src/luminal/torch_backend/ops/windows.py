"""PyTorch's pooling, resampling and windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import luminal as lm
from luminal.nn import functional
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops.refusals import refuse_outside
from luminal.torch_backend.ops.registry import row, rows

Tensor = lm.Tensor
Ints = Sequence[int]


def _max_pool(pool: Callable[..., Any]) -> Callable[..., Any]:
    def pooled(
        x: Tensor, kernel_size: Ints, stride: Ints = (), padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        return pool(
            # Schemas have an empty list where windows are to lie side by side.
            x, _sizes(kernel_size), _sizes(stride) or None, _sizes(padding), _sizes(dilation),
            ceil_mode, True,
        )  # fmt: skip

    return pooled


def _sizes(sizes: Any) -> Any:
    """A number for all dims is a list of one in some schemas."""
    if isinstance(sizes, int):
        return sizes
    return sizes[0] if len(sizes) == 1 else tuple(sizes)


def _avg_pool(pool: Callable[..., Any]) -> Callable[..., Any]:
    def pooled(
        x: Tensor, kernel_size: Ints, stride: Ints = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        return pool(
            x, _sizes(kernel_size), _sizes(stride) or None, _sizes(padding), ceil_mode,
            count_include_pad, divisor_override,
        )  # fmt: skip

    return pooled


rows(
    {
        "max_pool2d_with_indices": _max_pool(functional.max_pool2d),
        "max_pool3d_with_indices": _max_pool(functional.max_pool3d),
        "avg_pool2d": _avg_pool(functional.avg_pool2d),
        "avg_pool3d": _avg_pool(functional.avg_pool3d),
        "_adaptive_avg_pool2d": functional.adaptive_avg_pool2d,
        "_adaptive_avg_pool3d": functional.adaptive_avg_pool3d,
    }
)


def _adaptive_max(pool: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, output_size: pool(x, tuple(output_size), return_indices=True)


rows(
    {
        "adaptive_max_pool2d": _adaptive_max(functional.adaptive_max_pool2d),
        "adaptive_max_pool3d": _adaptive_max(functional.adaptive_max_pool3d),
    }
)


@row("im2col")
def im2col(x: Tensor, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Tensor:
    return functional.unfold(x, tuple(kernel_size), tuple(dilation), tuple(padding), tuple(stride))


@row("col2im")
def col2im(
    x: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Tensor:
    sizes: Any = (output_size, kernel_size, dilation, padding, stride)
    return functional.fold(x, *map(tuple, sizes))


_INTERPOLATIONS: Any = ("bilinear", "nearest", "bicubic")
_PADDINGS: Any = ("zeros", "border", "reflection")


@row("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    mode, padding = _INTERPOLATIONS[interpolation_mode], _PADDINGS[padding_mode]
    grid = _with_places(grid, mode, padding, len(x.shape) - 2)
    return functional.grid_sample(x, grid, mode, padding, align_corners)


def _with_places(grid: Tensor, mode: str, padding: str, rank: int) -> Tensor:
    """NaN stands where PyTorch's kernels see it: before the first pixel, in volumes behind the
    last one. In volumes, and where places are mirrored, infinities do, too.
    """
    if mode == "bicubic" or (padding == "zeros" and mode == "bilinear" and rank == 2):
        return grid
    outside = 3.0 if padding == "zeros" else -1.0 if rank == 2 else 1.0
    is_place = lm.logical_not(lm.isnan(grid)) if padding == "border" else lm.isfinite(grid)
    return lm.where(is_place, grid, outside)


@row("max_unpool2d", "max_unpool3d")
def max_unpool(x: Tensor, indices: Tensor, output_size: Ints, *_: Any) -> Tensor:
    rank = len(output_size)
    lead, count = x.shape[:-rank], 1
    for n in output_size:
        count = count * n
    refuse_outside(indices, count)
    flat = lm.zeros((*lead, count), x.dtype)
    places = indices.reshape(*lead, -1)
    return flat.scatter(-1, places, x.reshape(*lead, -1)).reshape(*lead, *output_size)


@row("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(
    x: Tensor, kernel_size: Ints, output_size: Ints, samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Maxima of windows whose steps vary: the k-th lies at floor((k + u) a) - floor(u a), where u
    is the plane's number in `samples` (B. Graham, "Fractional Max-Pooling", 2014).
    """
    rank = len(output_size)
    lead, extents = x.extents[:-rank], x.shape[-rank:]
    numbers = samples.reshape(*lead, rank)
    place: Any = 0
    for dim, n in enumerate(extents):
        if not isinstance(n, int):
            raise UnsupportedError(f"the size {n} is open")
        # PyTorch's first number is the width's in two dims, the depth's in three
        number = numbers[..., rank - 1 - dim if rank == 2 else dim]
        starts = _starts(number, n, output_size[dim], kernel_size[dim])
        at = starts.unsqueeze(-1) + lm.arange(kernel_size[dim])
        shape = [1] * (2 * rank)
        shape[dim], shape[rank + dim] = output_size[dim], kernel_size[dim]
        place = place * n + at.reshape(*lead, *shape)
    window = math.prod(kernel_size)
    wide = (*lead, *output_size, *kernel_size)
    place = place.expand(*wide).reshape(*lead, -1)
    flat = x.reshape(*lead, -1)
    read = flat.gather(-1, place).reshape(*lead, *output_size, window)
    which = read.argmax(-1, keepdim=True)
    places = place.reshape(*lead, *output_size, window)
    return read.gather(-1, which).squeeze(-1), places.gather(-1, which).squeeze(-1)


def _starts(number: Tensor, extent: int, count: int, width: int) -> Tensor:
    """Where windows start: (*number.shape, count). The last one ends with the dim."""
    step = (extent - width) / (count - 1) if count > 1 else 0.0
    u = number.unsqueeze(-1)
    step_of = lm.constant(step, number.dtype)
    at = ((lm.arange(count, dtype=number.dtype) + u) * step_of).cast(lm.int64)
    at = at - (u * step_of).cast(lm.int64)
    return lm.where(lm.arange(count) == count - 1, extent - width, at)

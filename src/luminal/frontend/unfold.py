"""Windows as a tensor of their own, their sum back, and channels that become pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal.errors import ShapeError
from luminal.frontend.handle import Extent, along, axis_of, describe
from luminal.frontend.movement import reshape, unflatten, view_of
from luminal.frontend.reduce import sum as sum_over
from luminal.frontend.windows import (
    Ints,
    per_dim,
    phases,
    reaching,
    require_fits,
    sliding,
    windowed,
    with_batch,
)
from luminal.shape import view as views
from luminal.shape.expression import all_of, ceil_div, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


# --- windows --------------------------------------------------------------------------------------


def unfold_dim(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` at every `step` along a dim, as a new last dim: torch.Tensor.unfold."""
    if x.ndim == 0:
        x = x.unsqueeze(0)
    axis = axis_of("unfold", dimension, x.ndim)
    if size < 0 or step < 1:
        raise ShapeError(f"unfold: size {size}, step {step}; give size >= 0 and step >= 1")
    none = const(0), const(0)
    require_fits("unfold", x, axis, const(size), none)
    count = (x.extents[axis] - size) // step + 1
    view = views.window(x.extents, axis, const(size), const(step), const(1), count)
    return view_of(x, view)


def unfold(
    x: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Tensor:
    """im2col: x (batch, c, h, w) to (batch, c * kh * kw, oh * ow), zeros outside; one View.

    As torch.nn.functional.unfold. Raises ShapeError where no window fits.
    """
    x, unbatched = with_batch("unfold", x, 2)
    kernel, gaps, pads, steps = _options("unfold", kernel_size, dilation, padding, stride)
    windows = []
    for k in range(2):
        around = const(pads[k]), const(pads[k])
        require_fits("unfold", x, 2 + k, const(gaps[k] * (kernel[k] - 1) + 1), around)
        size = const(kernel[k])
        windows.append(sliding(x.extents[2 + k], size, steps[k], around, gaps[k]))
    taps = windowed(x, windows).permute(0, 1, 4, 5, 2, 3)
    batch, channels, _, _, oh, ow = taps.extents
    columns = reshape(taps, batch, channels * kernel[0] * kernel[1], oh * ow)
    return columns.squeeze(0) if unbatched else columns


def _options(
    what: str, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> tuple[tuple[int, ...], ...]:
    """Kernel, dilation, padding and stride of two dims."""
    return (
        per_dim(what, "kernel_size", kernel_size, 2),
        per_dim(what, "dilation", dilation, 2),
        per_dim(what, "padding", padding, 2, 0),
        per_dim(what, "stride", stride, 2),
    )


def fold(
    x: Tensor,
    output_size: Extent | tuple[Extent, Extent],
    kernel_size: Ints,
    dilation: Ints = 1,
    padding: Ints = 0,
    stride: Ints = 1,
) -> Tensor:
    """col2im: the sum of windows (batch, c * kh * kw, oh * ow) at their places: (batch, c, h, w).

    As torch.nn.functional.fold. Sum(View(x)) over the taps that reach a position, and no others'
    zeros: with stride s, one tap in s. Raises ShapeError where columns do not fit `output_size`.
    """
    unbatched = x.ndim == 2
    x = x.unsqueeze(0) if unbatched else x
    if x.ndim != 3:
        raise ShapeError(f"fold: takes (batch, c * kh * kw, windows); got {describe(x)}")
    kernel, gaps, pads, steps = _options("fold", kernel_size, dilation, padding, stride)
    given = output_size if isinstance(output_size, tuple | list) else (output_size,) * 2
    size = x.graph.extents(given)
    counts = [
        (size[k] + 2 * pads[k] - gaps[k] * (kernel[k] - 1) - 1) // steps[k] + 1 for k in range(2)
    ]
    channels = x.extents[1].exact_div(kernel[0] * kernel[1])
    if channels is None or x.extents[2] != counts[0] * counts[1]:
        raise ShapeError(
            f"fold: {describe(x)} is not c * {kernel[0] * kernel[1]} by {counts[0] * counts[1]}, "
            f"the windows of {kernel} over ({size[0]}, {size[1]})"
        )
    source = (x.extents[0], channels, *map(const, kernel), *counts)
    taps = [ceil_div(const(kernel[k]), phases(steps[k], gaps[k])) for k in range(2)]
    shape = (*source[:2], *size, *taps)
    i = [along(k, n) for k, n in enumerate(shape)]
    meetings = [reaching(i[2 + k] + pads[k], i[4 + k], steps[k], gaps[k]) for k in range(2)]
    inside = [
        condition
        for k, each in enumerate(meetings)
        for condition in (each.there, each.tap < kernel[k], each.at >= 0, each.at < counts[k])
    ]
    entries = [*i[:2], *(each.tap for each in meetings), *(each.at for each in meetings)]
    columns = reshape(x, source)
    met = view_of(columns, views.made(source, shape, entries, all_of(inside)))
    total = sum_over(met, (4, 5), dtype=x.dtype)
    return total.squeeze(0) if unbatched else total


# --- channels and pixels --------------------------------------------------------------------------


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """(..., c * r * r, h, w) to (..., c, h * r, w * r): channels become pixels; one View."""
    _check_planes("pixel_shuffle", x, upscale_factor)
    *lead, channels, height, width = x.extents
    r = upscale_factor
    if channels.is_const and channels.value % (r * r):
        raise ShapeError(f"pixel_shuffle: {channels} channels do not divide by {r} * {r}")
    n = len(lead)
    blocks = unflatten(x, n, (-1, r, r))
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return reshape(blocks.permute(order), *lead, blocks.extents[n], height * r, width * r)


def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """(..., c, h * r, w * r) to (..., c * r * r, h, w): the inverse of `pixel_shuffle`."""
    _check_planes("pixel_unshuffle", x, downscale_factor)
    *lead, channels, height, width = x.extents
    r = downscale_factor
    if any(extent.is_const and extent.value % r for extent in (height, width)):
        raise ShapeError(f"pixel_unshuffle: ({height}, {width}) does not divide by {r}")
    n = len(lead)
    blocks = unflatten(unflatten(x, n + 2, (-1, r)), n + 1, (-1, r))
    rows, columns = blocks.extents[n + 1], blocks.extents[n + 3]
    order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return reshape(blocks.permute(order), *lead, channels * r * r, rows, columns)


def _check_planes(what: str, x: Tensor, factor: int) -> None:
    if x.ndim < 3 or factor < 1:
        raise ShapeError(
            f"{what}: takes (..., channels, h, w) and a factor >= 1; got {describe(x)}, {factor}"
        )


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """(batch, g * c, ...) with channel g * c + i at i * g + c: groups interleaved; one View."""
    if x.ndim < 3 or groups < 1:
        raise ShapeError(
            f"channel_shuffle: takes (batch, channels, ...) and groups >= 1; got {describe(x)}"
        )
    channels = x.extents[1]
    if channels.is_const and channels.value % groups:
        raise ShapeError(f"channel_shuffle: {channels} channels do not divide by {groups} groups")
    return reshape(unflatten(x, 1, (groups, -1)).transpose(1, 2), x.extents)

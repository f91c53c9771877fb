"""Windows over the last dims of a tensor: what convolution and pooling read, and their sum back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.base.records import dataclass
from luminal.frontend.creation import position
from luminal.frontend.handle import Extent, Shape, along, axis_of, describe
from luminal.frontend.movement.scatter import scatter
from luminal.frontend.movement.views import reshape, unflatten, view_of
from luminal.frontend.pointwise.binary import where
from luminal.frontend.reduce.reductions import sum as sum_over
from luminal.shape import view as views
from luminal.shape.expression import Expression, all_of, ceil_div, const, minimum, product_of
from luminal.shape.view import View

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


Ints: TypeAlias = int | Sequence[int]
"""One int for all dims, or one for each."""
Padding: TypeAlias = Ints | str
"""Ints, or "same" or "valid"."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows along one dim."""

    count: Expression
    size: Expression
    at: Callable[[Expression, Expression], Expression]
    end: Callable[[Expression], Expression]


def per_dim(what: str, name: str, value: Ints, rank: int, least: int = 1) -> tuple[int, ...]:
    """One int for each of `rank` dims, all at least `least`; raises ShapeError otherwise."""
    values = (value,) * rank if isinstance(value, int | np.integer) else tuple(value)
    if len(values) == 1:
        values *= rank
    if len(values) != rank or not all(isinstance(n, int | np.integer) for n in values):
        raise ShapeError(f"{what}: {name} is {value}; give an int or {rank} ints")
    if any(n < least for n in values):
        raise ShapeError(f"{what}: {name} is {value}; give ints of at least {least}")
    return tuple(int(n) for n in values)


def paddings(
    what: str,
    padding: Padding,
    kernel: Sequence[Expression],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[tuple[Expression, Expression]]:
    """(before, after) for each dim. "same" keeps extents, with the odd zero behind."""
    if padding == "valid":
        padding = 0
    if isinstance(padding, str):
        if padding != "same":
            raise ShapeError(f"{what}: padding {padding!r}; give ints, 'same' or 'valid'")
        if any(n != 1 for n in stride):
            raise ShapeError(f"{what}: padding 'same' takes stride 1, not {tuple(stride)}")
        totals = [gap * (size - 1) for gap, size in zip(dilation, kernel, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(const(n), const(n)) for n in per_dim(what, "padding", padding, len(kernel), 0)]


def sliding(
    extent: Expression,
    size: Expression,
    stride: int,
    pads: tuple[Expression, Expression],
    dilation: int,
    *,
    ceil: bool = False,
) -> Windows:
    """Windows at every `stride`; `ceil` adds one that starts inside but ends behind the padding.

    The caller requires that one window fits (see `require_fits`).
    """
    before, after = pads
    # How far the first window can be moved before it leaves the padded extent.
    free = extent + before + after - (dilation * (size - 1) + 1)
    count = free // stride + 1
    if ceil:
        count = minimum(ceil_div(free, stride) + 1, (extent + before - 1) // stride + 1)
    return Windows(
        count,
        size,
        lambda o, w: o * stride + w * dilation - before,
        lambda _: extent,
    )


def require_fits(
    what: str, x: Tensor, dim: int, span: Expression, pads: tuple[Expression, Expression]
) -> None:
    """Requires that a window over `span` positions fits the padded extent of `dim`."""
    padded = x.extents[dim] + pads[0] + pads[1]
    fits = span <= padded
    if fits.is_const and not fits.value:
        raise ShapeError(
            f"{what}: a window spans {span} positions, dim {dim} of {describe(x)} has {padded} "
            "with its padding; use a smaller kernel or more padding"
        )
    x.graph.require(fits, f"{what}: the window's extent in dim {dim}")


def window_view(shape: Shape, windows: Sequence[Windows]) -> View:
    """The windows over the last dims of a source: its shape is (..., *counts, *sizes)."""
    rank = len(windows)
    first = len(shape) - rank
    out = (
        *shape[:first],
        *(window.count for window in windows),
        *(window.size for window in windows),
    )
    indices = [along(k, n) for k, n in enumerate(shape[:first])]
    inside: list[Expression] = []
    for k, window in enumerate(windows, first):
        o, w = along(k, window.count), along(k + rank, window.size)
        at = window.at(o, w)
        indices.append(at)
        # The padding is a condition of the view, no copy of x with zeros around.
        inside += [at >= 0, at < window.end(o)]
    return views.made(shape, out, indices, all_of(inside))


def windowed(x: Tensor, windows: Sequence[Windows], fill: float = 0) -> Tensor:
    """`x` as (..., *counts, *sizes); taps outside of it read `fill`."""
    view = window_view(x.extents, windows)
    taps = view_of(x, view)
    if fill == 0 or view.domain == const(1):
        return taps
    valid = position(x.graph, view.domain, view.shape, dtypes.bool_)
    return where(valid, taps, x.dtype.rounded(fill))


# --- from a result back to the taps ---------------------------------------------------------------


class Reaching(NamedTuple):
    """A tap, the position it reads or writes, and whether there is one."""

    tap: Expression
    at: Expression
    there: Expression


def phases(stride: int, dilation: int) -> int:
    """How many taps lie between two that reach the same position."""
    return stride // gcd(stride, dilation)


def reaching(q: Expression, t: Expression, stride: int, dilation: int) -> Reaching:
    """The t-th tap k with `at * stride + k * dilation = q` for a position `at`.

    Such k are equal modulo `phases`. The caller checks that tap and position are inside.
    """
    # at * stride + k * dilation = q: solved for k modulo stride by the inverse of the dilation.
    common, steps = gcd(stride, dilation), phases(stride, dilation)
    inverse = pow(dilation // common, -1, steps) if steps > 1 else 0
    residue = q % stride
    k = (residue // common * inverse) % steps + t * steps
    return Reaching(k, (q - k * dilation) // stride, (residue % common).eq(0))


def with_batch(what: str, x: Tensor, rank: int) -> tuple[Tensor, bool]:
    """`x` as (batch, channels, *spatial), and whether the batch was added.

    Raises ShapeError unless x has `rank` spatial dims behind channels, or batch and channels.
    """
    if x.ndim == rank + 1:
        return x.unsqueeze(0), True
    if x.ndim != rank + 2:
        raise ShapeError(
            f"{what}: takes (batch, channels, {rank} spatial dims), or without batch; "
            f"got {describe(x)}"
        )
    return x, False


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
    sizes = output_size if isinstance(output_size, tuple | list) else (output_size,) * 2
    size = x.graph.extents(sizes)
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
    # Turned round: for each position of the result the taps that reach it, one in so many.
    taps = [ceil_div(const(kernel[k]), phases(steps[k], gaps[k])) for k in range(2)]
    shape = (*source[:2], *size, *taps)
    i = [along(k, n) for k, n in enumerate(shape)]
    meetings = [reaching(i[2 + k] + pads[k], i[4 + k], steps[k], gaps[k]) for k in range(2)]
    inside = [
        condition
        for k, meeting in enumerate(meetings)
        for condition in (
            meeting.there,
            meeting.tap < kernel[k],
            meeting.at >= 0,
            meeting.at < counts[k],
        )
    ]
    entries = [
        *i[:2],
        *(meeting.tap for meeting in meetings),
        *(meeting.at for meeting in meetings),
    ]
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


# --- unpool ---------------------------------------------------------------------------------------


Sizes = Sequence[Extent] | None


def max_unpool1d(
    x: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sizes = None,
) -> Tensor:
    """`x` at the positions that `max_pool1d` returned; see `max_unpool2d`."""
    return _unpooled("max_unpool1d", 1, x, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    x: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sizes = None,
) -> Tensor:
    """`x` at the positions that `max_pool2d(return_indices=True)` gave, zeros elsewhere.

    An extent n becomes (n-1) * stride - 2 * padding + kernel, or what `output_size` says.
    Scatter into zeros; where positions repeat, the last one wins. Raises ShapeError where shapes
    differ.
    """
    return _unpooled("max_unpool2d", 2, x, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    x: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sizes = None,
) -> Tensor:
    """`x` at the positions that `max_pool3d` returned; see `max_unpool2d`."""
    return _unpooled("max_unpool3d", 3, x, indices, kernel_size, stride, padding, output_size)


def _unpooled(
    what: str,
    rank: int,
    x: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None,
    padding: Ints,
    output_size: Sizes,
) -> Tensor:
    with_batch(what, x, rank)
    if indices.extents != x.extents:
        raise ShapeError(
            f"{what}: the indices {describe(indices)} and {describe(x)} differ in shape; "
            "give those that max_pool returned with the values"
        )
    kernel = per_dim(what, "kernel_size", kernel_size, rank)
    steps = kernel if not stride else per_dim(what, "stride", stride, rank)
    pads = per_dim(what, "padding", padding, rank, 0)
    lead = x.extents[:-rank]
    spatial = [
        (n - 1) * step - 2 * pad + size
        for n, step, pad, size in zip(x.extents[-rank:], steps, pads, kernel, strict=True)
    ]
    if output_size is not None:
        spatial = list(x.graph.extents(list(output_size)[-rank:]))
    positions = reshape(indices, *lead, product_of(x.extents[-rank:]))
    values = reshape(x, positions.extents)
    flat = x.graph.zeros((*lead, product_of(spatial)), x.dtype)
    return reshape(scatter(flat, -1, positions, values), *lead, *spatial)

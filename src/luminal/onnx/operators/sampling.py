"""Reading pictures at real places: grids, regions, moved taps; and choosing among boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

import luminal as lm
from luminal.base import dtypes
from luminal.frontend.tensor import Tensor
from luminal.nn import functional as F
from luminal.onnx.budget import check_table
from luminal.onnx.call import Call
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.operators.shapes import extent
from luminal.onnx.operators.windows import check_kernel, per_dim
from luminal.onnx.table import operator
from luminal.onnx.values import Array

_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@operator("GridSample")
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Any:
    """x at the places of a grid, from -1 to 1."""
    mode = call.attribute("mode", "linear" if call.version >= 20 else "bilinear")
    return F.grid_sample(
        x,
        grid,
        _MODES.get(mode, mode),
        call.attribute("padding_mode", "zeros"),
        bool(call.attribute("align_corners", 0)),
    )


def _at(plane: Tensor, y: Tensor, x: Tensor, high: int, wide: int) -> Any:
    """Elements of planes (..., high * wide) at whole places (..., places), 0 outside."""
    inside = (y >= 0) & (y < high) & (x >= 0) & (x < wide)
    flat = lm.where(inside, y * wide + x, 0).cast(dtypes.int64)
    return lm.where(inside, plane.gather(plane.ndim - 1, flat), 0)


def _bilinear(plane: Tensor, y: Tensor, x: Tensor, high: int, wide: int) -> Tensor:
    """Planes (..., high * wide) at real places (..., places): zeros around them."""
    top, left = lm.floor(y), lm.floor(x)
    total: Any = 0
    for down in (0, 1):
        for right in (0, 1):
            weight = _share(y - top, down) * _share(x - left, right)
            total = total + weight * _at(plane, top + down, left + right, high, wide)
    return total  # type: ignore[no-any-return]


def _share(fraction: Tensor, far: int) -> Tensor:
    return fraction if far else 1 - fraction


@operator("DeformConv")
def deform_conv(
    call: Call,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution whose taps are moved by offsets, which may differ from place to place."""
    if x.ndim != 4:
        raise UnsupportedError("DeformConv of other than two spatial dims")
    check_kernel(call, weight)
    batch, channels, high, wide = (extent(x, k) for k in range(4))
    out, depth, kh, kw = (extent(weight, k) for k in range(4))
    groups, parts = call.attribute("group", 1), call.attribute("offset_group", 1)
    steps, gaps = per_dim(call, "strides", 2), per_dim(call, "dilations", 2)
    border = call.attribute("pads") or [0] * 4
    oh, ow = extent(offset, 2), extent(offset, 3)
    moved = offset.reshape(batch, parts, kh, kw, 2, oh, ow)
    check_table(kh, kw, oh, ow)
    rows = np.arange(kh)[:, None, None, None] * gaps[0] + np.arange(oh)[:, None] * steps[0]
    columns = np.arange(kw)[:, None, None] * gaps[1] + np.arange(ow) * steps[1]
    shape = (kh, kw, oh, ow)
    base = [np.broadcast_to(b, shape) - p for b, p in zip((rows, columns), border[:2], strict=True)]
    y = moved.select(4, 0) + call.constant(base[0], x.dtype)
    at = moved.select(4, 1) + call.constant(base[1], x.dtype)
    places = (batch, parts, 1, kh * kw * oh * ow)
    spread = (batch, parts, channels // parts, kh * kw * oh * ow)
    plane = x.reshape(batch, parts, channels // parts, high * wide)
    taps = _bilinear(
        plane, y.reshape(*places).expand(*spread), at.reshape(*places).expand(*spread), high, wide
    )
    if mask is not None:
        taps = taps * mask.reshape(*places)
    taps = taps.reshape(batch, groups, depth * kh * kw, oh * ow)
    rows_of = weight.reshape(groups, out // groups, depth * kh * kw)
    products = lm.matmul(rows_of, taps).reshape(batch, out, oh, ow)
    return products if bias is None else products + bias.reshape(-1, 1, 1)


@operator("RoiAlign")
def roi_align(call: Call, x: Tensor, boxes: Tensor, batch: Tensor) -> Any:
    """The mean or the greatest of samples in each cell of each region."""
    oh, ow = call.attribute("output_height", 1), call.attribute("output_width", 1)
    ratio = call.attribute("sampling_ratio", 0)
    scale = call.attribute("spatial_scale", 1.0)
    half = call.version >= 16
    shift = 0.5 if call.attribute(
        "coordinate_transformation_mode", "half_pixel" if half else "output_half_pixel"
    ) == "half_pixel" else 0.0  # fmt: skip
    if ratio <= 0:
        return _adaptive_regions(call, x, scale, shift)
    call.within(batch, 0, x.extents[0])
    return _regions(call, x, boxes, batch, (oh, ow), (ratio, ratio), scale, shift)


def _adaptive_regions(call: Call, x: Tensor, scale: float, shift: float) -> Tensor:
    """Takes as many samples as a cell has elements: a number for each region, so the boxes are
    read.
    """
    cells = call.attribute("output_height", 1), call.attribute("output_width", 1)
    # Extents that data decides are no shapes of a program: the model is cut here, and goes on with
    # the boxes known.
    corners = call.read(call.input(1)).astype(np.float64) * scale - shift
    x, boxes, batch = (call.input(k) for k in range(3))
    call.within(batch, 0, x.extents[0])
    regions = []
    call.count(len(corners))
    for k, (left, top, right, bottom) in enumerate(corners):
        high, wide = bottom - top, right - left
        if shift == 0:
            high, wide = max(high, 1.0), max(wide, 1.0)
        grid = int(np.ceil(high / cells[0])), int(np.ceil(wide / cells[1]))
        if min(grid) < 1:  # ends before it begins: no samples
            regions.append(call.graph.zeros((1, x.extents[1], *cells), dtype=x.dtype))
            continue
        one = boxes.narrow(0, k, 1), batch.narrow(0, k, 1)
        regions.append(_regions(call, x, *one, cells, grid, scale, shift))
    return lm.cat(regions, 0)


def _regions(
    call: Call,
    x: Tensor,
    boxes: Tensor,
    batch: Tensor,
    cells: tuple[int, int],
    grid: tuple[int, int],
    scale: float,
    shift: float,
) -> Any:
    count = extent(boxes, 0)
    high, wide = extent(x, 2), extent(x, 3)
    channels = extent(x, 1)
    left, top, right, bottom = ((boxes * scale - shift).select(1, k) for k in range(4))
    tall, broad = bottom - top, right - left
    for n, g in zip(cells, grid, strict=True):
        check_table(n, g)
    if shift == 0:
        tall, broad = lm.maximum(tall, 1.0), lm.maximum(broad, 1.0)
    ys, xs = (
        (
            first.unsqueeze(-1)
            + size.unsqueeze(-1)
            / n
            * call.constant((np.arange(n)[:, None] + (np.arange(g) + 0.5) / g).reshape(-1), x.dtype)
        )
        for first, size, n, g in ((top, tall, cells[0], grid[0]), (left, broad, cells[1], grid[1]))
    )  # (count, cells * grid) each
    shape = (count, channels, extent(ys, 1), extent(xs, 1))
    flat = (count, channels, extent(ys, 1) * extent(xs, 1))
    y = ys.reshape(count, 1, -1, 1).expand(*shape).reshape(*flat)
    at = xs.reshape(count, 1, 1, -1).expand(*shape).reshape(*flat)
    outside = (y < -1) | (y > high) | (at < -1) | (at > wide)
    y, at = y.clip(0, high - 1), at.clip(0, wide - 1)
    plane = x.take(batch.cast(dtypes.int64), 0).reshape(count, channels, high * wide)
    biggest = call.attribute("mode", "avg") == "max"
    read = _weighted_most if biggest else _bilinear
    samples = lm.where(outside, 0, read(plane, y, at, high, wide))
    blocks = samples.reshape(count, channels, cells[0], grid[0], cells[1], grid[1])
    return blocks.amax((3, 5)) if biggest else blocks.mean((3, 5))


def _weighted_most(plane: Tensor, y: Tensor, x: Tensor, high: int, wide: int) -> Tensor:
    """The greatest of the four weighted neighbours, as ONNX's maximum pooling of regions."""
    top, left = lm.floor(y), lm.floor(x)
    most: Any = None
    for down in (0, 1):
        for right in (0, 1):
            weight = _share(y - top, down) * _share(x - left, right)
            neighbour = weight * _at(plane, top + down, left + right, high, wide)
            most = neighbour if most is None else lm.maximum(most, neighbour)
    return most  # type: ignore[no-any-return]


@operator("NonMaxSuppression")
def non_max_suppression(call: Call, boxes: Tensor, scores: Tensor, *limits: Any) -> Tensor:
    """Boxes that overlap no better one of their class: rows (batch, class, box).

    Which they are depends on data alone; boxes and scores are read.
    """
    read = [None if x is None else call.read(x).reshape(-1)[0] for x in limits]
    most, overlap, least = (*read, None, None, None)[:3]
    if not 0 <= (overlap or 0) <= 1:
        raise OnnxError(f"the threshold of overlap is {overlap}; it must lie in 0..1")
    corners = _corners(call.read(call.input(0)), bool(call.attribute("center_point_box", 0)))
    values = call.read(call.input(1))
    rows = [
        (batch, kind, box)
        for batch in range(values.shape[0])
        for kind in range(values.shape[1])
        for box in _chosen(
            corners[batch], values[batch, kind], int(most or 0), float(overlap or 0), least
        )
    ]
    return call.hosted(np.array(rows, np.int64).reshape(-1, 3))


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as (top, left, bottom, right)."""
    if centred:
        x, y, wide, high = np.moveaxis(boxes, -1, 0)
        return np.stack([y - high / 2, x - wide / 2, y + high / 2, x + wide / 2], -1)
    y1, x1, y2, x2 = np.moveaxis(boxes, -1, 0)
    ends = [np.minimum(y1, y2), np.minimum(x1, x2), np.maximum(y1, y2), np.maximum(x1, x2)]
    return np.stack(ends, -1)


def _chosen(boxes: Array, scores: Array, most: int, overlap: float, least: Any) -> list[int]:
    # Stable: of equal scores the first box stays, as in ONNX Runtime.
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > least]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    for box in order.tolist():
        if len(kept) >= most:
            break
        low = np.maximum(boxes[kept, :2], boxes[box, :2])
        high = np.minimum(boxes[kept, 2:], boxes[box, 2:])
        common = np.prod(np.maximum(high - low, 0), -1)
        if np.all(common <= overlap * (area[kept] + area[box] - common)):
            kept.append(box)
    return kept

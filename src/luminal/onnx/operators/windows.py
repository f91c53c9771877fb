"""ONNX's convolution and pooling, operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import luminal as lm
from luminal.frontend.handle import work_dtype
from luminal.frontend.movement import padding as pads
from luminal.frontend.reduce.reductions import sum as sum_over
from luminal.frontend.tensor import Tensor
from luminal.frontend.windows.pooling import max_of_windows, mean_of_windows
from luminal.frontend.windows.unfold import Windows, require_fits, sliding, windowed
from luminal.nn import functional as F
from luminal.onnx.budget import check_table
from luminal.onnx.call import Call, ints_of
from luminal.onnx.errors import OnnxError, UnsupportedError
from luminal.onnx.operators import codes
from luminal.onnx.table import operator
from luminal.onnx.values import Array
from luminal.shape.expression import Expression, ceil_div, const, maximum

Pair = tuple[Any, Any]

_CONVOLUTIONS = {1: lm.conv1d, 2: lm.conv2d, 3: lm.conv3d}
_TRANSPOSED = {1: lm.conv_transpose1d, 2: lm.conv_transpose2d, 3: lm.conv_transpose3d}


def per_dim(call: Call, name: str, rank: int, default: int = 1) -> list[int]:
    """An attribute with an int for each spatial dim."""
    numbers = call.attribute(name) or [default] * rank
    least = min(default, 1)
    if len(numbers) != rank or any(n < least for n in numbers):
        raise OnnxError(f"{name} is {numbers}; it takes {rank} ints from {least} on")
    return list(numbers)


def paddings(
    call: Call,
    extents: Sequence[Expression],
    kernel: Sequence[Expression],
    steps: Sequence[int],
    gaps: Sequence[int],
) -> list[Pair]:
    """What is added before and after each spatial dim."""
    auto = call.attribute("auto_pad", "NOTSET")
    rank = len(extents)
    if auto == "NOTSET":
        pads = call.attribute("pads") or [0] * (2 * rank)
        return [(pads[k], pads[rank + k]) for k in range(rank)]
    if auto == "VALID":
        return [(0, 0)] * rank
    pairs = []
    for n, size, step, gap in zip(extents, kernel, steps, gaps, strict=True):
        total = maximum((ceil_div(n, step) - 1) * step + gap * (size - 1) + 1 - n, 0)
        # SAME: as many results as steps fit; an odd element goes behind, or in front for
        # SAME_LOWER.
        less, more = total // 2, total - total // 2
        pairs.append((less, more) if auto == "SAME_UPPER" else (more, less))
    return pairs


def padded(x: Tensor, pairs: Sequence[Pair], value: Any = 0) -> Tensor:
    """x with zeros, or another number, around its spatial dims."""
    if all(_is_zero(n) for pair in pairs for n in pair):
        return x
    return pads.pad(x, [(0, 0), (0, 0), *pairs], "constant", value)


def _is_zero(n: Any) -> bool:
    return n == 0 if isinstance(n, int) else bool(n.is_const and n.value == 0)


def check_kernel(call: Call, weight: Tensor) -> None:
    """Raises OnnxError where `kernel_shape` is not the weight's."""
    stated = call.attribute("kernel_shape")
    if stated is not None and list(weight.shape[2:]) != list(stated):
        raise OnnxError(f"kernel_shape is {stated}, the weight is {weight.value.type}")


def convolved(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The convolution that the attributes describe, of numbers of any dtype."""
    rank = x.ndim - 2
    if rank not in _CONVOLUTIONS:
        raise UnsupportedError(f"convolution of {rank} spatial dims; there are those of 1 to 3")
    check_kernel(call, weight)
    if any(n == 0 for n in weight.extents[2:]):
        raise OnnxError(f"the weight {weight.value.type} has no taps")
    steps, gaps = per_dim(call, "strides", rank), per_dim(call, "dilations", rank)
    pairs = paddings(call, x.extents[2:], weight.extents[2:], steps, gaps)
    groups = call.attribute("group", 1)
    is_bare = all(_is_zero(n) for pair in pairs for n in pair)
    if rank == 2 and groups == 1 and is_bare and weight.shape[2:] == (1, 1):
        product = codes.pointwise_convolution(call, x, weight, bias, steps)
        if product is not None:
            return product
    # Equal borders go into the convolution; others are a Pad before it.
    even = all(a is b or a == b for a, b in pairs) and all(isinstance(a, int) for a, _ in pairs)
    border: Any = [a for a, _ in pairs] if even else 0
    if not even:
        x = padded(x, pairs)
    return _CONVOLUTIONS[rank](x, weight, bias, steps, border, gaps, groups)


@operator("Conv")
def conv(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Cross-correlation over 1 to 3 spatial dims."""
    return convolved(call, x, weight, bias)


@operator("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Transposed convolution; what `pads` takes away is cut off the full result."""
    rank = x.ndim - 2
    if rank not in _TRANSPOSED:
        raise UnsupportedError(f"convolution of {rank} spatial dims; there are those of 1 to 3")
    steps, gaps = per_dim(call, "strides", rank), per_dim(call, "dilations", rank)
    more = per_dim(call, "output_padding", rank, 0)
    check_kernel(call, weight)
    groups = call.attribute("group", 1)
    # Computed whole and cut afterwards: pads, output_shape and auto_pad are three ways to say which
    # part is wanted.
    full = _TRANSPOSED[rank](x, weight, None, steps, 0, 0, groups, gaps)
    wanted = call.attribute("output_shape")
    auto = call.attribute("auto_pad", "NOTSET")
    for k in range(rank):
        extent = full.extents[2 + k] + more[k]
        if wanted or auto.startswith("SAME"):
            if not wanted and gaps[k] * (weight.extents[2 + k] - 1) + 1 + more[k] < steps[k]:
                raise UnsupportedError(
                    "auto_pad with steps beyond the kernel, which runtimes read apart"
                )
            size = const(wanted[-rank + k]) if wanted else x.extents[2 + k] * steps[k]
            total = maximum(extent - size, 0)
            half = total // 2
            before = half if auto == "SAME_UPPER" or auto == "NOTSET" else total - half
        else:
            amounts = call.attribute("pads") or [0] * (2 * rank)
            before = const(amounts[k])
            size = extent - amounts[k] - amounts[rank + k]
        there = full.extents[2 + k] - before
        full = full.narrow(2 + k, before, there)
        change = size - there
        pair: list[Pair] = [(0, 0)] * full.ndim
        pair[2 + k] = (0, change)
        full = pads.pad(full, pair)
    return full if bias is None else full + bias.reshape(-1, *(1,) * rank)


# --- pooling --------------------------------------------------------------------------------------


def _windows(call: Call, x: Tensor) -> tuple[list[Windows], list[Pair]]:
    rank = x.ndim - 2
    call.required("kernel_shape")
    kernel = [const(n) for n in per_dim(call, "kernel_shape", rank)]
    steps, gaps = per_dim(call, "strides", rank), per_dim(call, "dilations", rank)
    pairs = paddings(call, x.extents[2:], kernel, steps, gaps)
    same = call.attribute("auto_pad", "NOTSET").startswith("SAME")
    if same and any(
        s > gap * (k.value - 1) + 1 for s, gap, k in zip(steps, gaps, kernel, strict=True)
    ):
        raise UnsupportedError("auto_pad with steps beyond the kernel, which runtimes read apart")
    ceil = bool(call.attribute("ceil_mode", 0))
    windows = []
    for k in range(rank):
        before, after = (n if isinstance(n, Expression) else const(n) for n in pairs[k])
        span = gaps[k] * (kernel[k] - 1) + 1
        beyond = steps[k] - 1 if ceil else 0  # a last window may end behind the padding
        require_fits(call.node.op_type, x, 2 + k, span, (before, after + beyond))
        windows.append(
            sliding(x.extents[2 + k], kernel[k], steps[k], (before, after), gaps[k], ceil=ceil)
        )
    return windows, pairs


@operator("MaxPool")
def max_pool(call: Call, x: Tensor) -> Any:
    """The greatest of each window, and where it is in the whole tensor, flattened."""
    windows, _ = _windows(call, x)
    if len(call.node.output) == 1:
        return max_of_windows(x, windows, False)
    values, places = max_of_windows(x, windows, True)
    plane = lm.zeros_like(places)
    for k, n in enumerate(places.extents[:2]):
        plane = plane * n + call.graph.iota(places.extents, k)
    spatial = x.extents[2:]
    if call.attribute("storage_order", 0):
        places = _column_major(places, spatial)
    count = call.graph.constant(_product(spatial))
    return values, plane * count + places


def _product(extents: Sequence[Expression]) -> Expression:
    product: Expression = const(1)
    for n in extents:
        product = product * n
    return product


def _column_major(places: Tensor, extents: Sequence[Expression]) -> Tensor:
    """Row-major positions of a plane as column-major ones."""
    graph = places.graph
    at = []
    for n in reversed(extents):
        size = graph.constant(n)
        at.append(places % size)
        places = places // size
    position = lm.zeros_like(places)
    for place, n in zip(at, reversed(extents), strict=True):
        position = position * graph.constant(n) + place
    return position


@operator("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    """The mean of each window; what is padded counts where `count_include_pad` says so."""
    windows, pairs = _windows(call, x)
    if not call.attribute("count_include_pad", 0):
        if any(n != 1 for n in per_dim(call, "dilations", x.ndim - 2)):
            return _mean_of_there(x, windows)
        return mean_of_windows(x, windows, [0] * (x.ndim - 2))
    steps, gaps = (per_dim(call, name, x.ndim - 2) for name in ("strides", "dilations"))
    wide = padded(x, pairs)
    ceil = bool(call.attribute("ceil_mode", 0))
    kernel = [const(n) for n in call.required("kernel_shape")]
    zero = const(0), const(0)
    inner = []
    for k in range(x.ndim - 2):
        inside = sliding(wide.extents[2 + k], kernel[k], steps[k], zero, gaps[k], ceil=ceil)
        count = windows[k].count
        inner.append(Windows(count, inside.size, inside.at, inside.end))
    return _mean_of_there(wide, inner)


def _mean_of_there(x: Tensor, windows: Sequence[Windows]) -> Tensor:
    """Each window's sum by how many of its taps lie in x."""
    work = x.cast(work_dtype(x.dtype))
    over = tuple(range(-len(windows), 0))
    count = sum_over(windowed(lm.ones_like(work), windows), over)
    return (sum_over(windowed(work, windows), over) / count).cast(x.dtype)


@operator("LpPool")
def lp_pool(call: Call, x: Tensor) -> Any:
    """The p-norm of each window."""
    windows, _ = _windows(call, x)
    p = call.attribute("p", 2)
    work = lm.abs(x.cast(work_dtype(x.dtype)))
    total = sum_over(windowed(work**p, windows), tuple(range(-len(windows), 0)))
    return (total ** (1.0 / p)).cast(x.dtype)


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Tensor:
    """The mean of each plane."""
    return x.mean(_spatial(x), True)


@operator("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Tensor:
    """The greatest of each plane."""
    return x.amax(_spatial(x), True)


@operator("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor) -> Any:
    """The p-norm of each plane."""
    p = call.attribute("p", 2)
    return (lm.abs(x) ** p).sum(_spatial(x), True) ** (1.0 / p)


@operator("MaxUnpool", known_inputs=(2,))
def max_unpool(call: Call, x: Tensor, places: Tensor, shape: Array | None = None) -> Tensor:
    """Elements where they were before max-pooling, zeros elsewhere."""
    rank = x.ndim - 2
    kernel, steps = call.required("kernel_shape"), per_dim(call, "strides", rank)
    border = call.attribute("pads") or [0] * (2 * rank)
    natural = [
        (x.shape[2 + k] - 1) * steps[k] + kernel[k] - border[k] - border[rank + k]
        for k in range(rank)
    ]
    inner = [*x.shape[:2], *natural]
    whole = inner if shape is None else ints_of(shape)
    if len(whole) != x.ndim or any(n < least for n, least in zip(whole, inner, strict=True)):
        raise OnnxError(f"output_shape is {whole}; what was pooled has {inner} or more")
    places = places.reshape(-1)
    call.within(places, 0, int(np.prod(inner)))
    count = int(np.prod(whole))
    flat = call.graph.zeros(count, dtype=x.dtype)
    # the places count in the tensor that was pooled, which a larger result may hold
    at = _moved_places(places, inner, whole)
    return flat.scatter(0, at, x.reshape(-1)).reshape(*whole)


def _moved_places(places: Tensor, inner: Sequence[int], whole: Sequence[int]) -> Any:
    if list(inner) == list(whole):
        return places
    moved: Any = 0
    strides = np.cumprod([1, *inner[::-1]])[-2::-1].tolist()
    outer = np.cumprod([1, *whole[::-1]])[-2::-1].tolist()
    for size, stride, step in zip(inner, strides, outer, strict=True):
        moved = moved + (places // int(stride)) % int(size) * int(step)
    return moved


@operator("Col2Im", known_inputs=(1, 2))
def col2im(call: Call, x: Tensor, image: Array, block: Array) -> Tensor:
    """Windows added up where they lie."""
    image_size = ints_of(image)
    rank = len(image_size)
    if rank != 2:
        return _folded(call, x, ints_of(image), ints_of(block))
    border = call.attribute("pads") or [0] * (2 * rank)
    if border[:rank] != border[rank:]:
        return _folded(call, x, ints_of(image), ints_of(block))
    return F.fold(
        x,
        (image_size[0], image_size[1]),
        ints_of(block),
        per_dim(call, "dilations", rank),
        border[:rank],
        per_dim(call, "strides", rank),
    )


def _folded(call: Call, x: Tensor, image: list[int], block: list[int]) -> Tensor:
    """Folds as `fold` does, for any rank: every tap is added at its position."""
    rank = len(image)
    steps, gaps = per_dim(call, "strides", rank), per_dim(call, "dilations", rank)
    border = call.attribute("pads") or [0] * (2 * rank)
    counts = [
        (image[k] + border[k] + border[rank + k] - gaps[k] * (block[k] - 1) - 1) // steps[k] + 1
        for k in range(rank)
    ]
    check_table(*block, *counts, rank)
    taps = np.stack(np.meshgrid(*map(np.arange, block), indexing="ij"), -1).reshape(-1, rank)
    spots = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1).reshape(-1, rank)
    at = spots[None] * steps + taps[:, None] * gaps - np.array(border[:rank])
    inside = ((at >= 0) & (at < np.array(image))).all(-1).reshape(-1)
    strides = np.cumprod([1, *image[::-1]])[-2::-1]
    flat = np.where(inside, (at.reshape(-1, rank) * strides).sum(-1), int(np.prod(image)))
    batch = x.extents[0]
    channels = x.extents[1] // int(np.prod(block))
    values = x.reshape(batch, channels, -1)
    # One element more takes the taps that lie outside the image, and is cut off.
    empty = call.graph.zeros((batch, channels, int(np.prod(image)) + 1), dtype=x.dtype)
    index = call.graph.constant(flat.astype(np.int64))
    summed = empty.index_add(2, index, values).narrow(2, 0, int(np.prod(image)))
    return summed.reshape(batch, channels, *image)

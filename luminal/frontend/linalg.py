"""Products of matrices, and convolution and pooling written with windows of their input."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from luminal import dtypes
from luminal.dtypes import DType
from luminal.errors import ShapeError
from luminal.frontend.binary import promotion
from luminal.frontend.handle import Operand, describe, is_tensor, together
from luminal.frontend.movement import pad, reshape, view_of
from luminal.frontend.reduce import amax
from luminal.frontend.reduce import sum as sum_over
from luminal.shape import view as views
from luminal.shape.expression import const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Pair: TypeAlias = int | tuple[int, int]


# --- matrix products ------------------------------------------------------------------------------


def _product_dtype(dtype: DType) -> DType:
    """What products of `dtype` are formed in: f32 for 16-bit floats, i32 for narrow integers."""
    if dtype.is_float or dtype.size >= 4:
        return dtype.compute
    return dtypes.uint32 if dtype is dtypes.uint16 else dtypes.int32


def matmul(a: Operand, b: Operand) -> Tensor:
    """The matrix product of the last two dims; the others broadcast. 1-d operands are vectors.

    Raises ShapeError where inner extents differ. int8 and other narrow integers give int32.
    """
    graph = next(x.graph for x in (a, b) if is_tensor(x))
    x, y = (each if is_tensor(each) else graph.constant(each) for each in (a, b))
    graph, (left, right) = together(x, y)
    x, y = graph.wrap(left), graph.wrap(right)
    _check_matmul(x, y)
    common = promotion((x, y))
    work = _product_dtype(common)
    rows = x.cast(work).unsqueeze(-1)  # (..., m, k, 1)
    columns = y.cast(work)
    if y.ndim == 1:
        columns = columns.unsqueeze(-1)  # (k, 1)
    if x.ndim > 1:
        columns = columns.unsqueeze(-3)  # (..., 1, k, n)
    product = sum_products(rows, columns, -2)
    if y.ndim == 1:
        product = product.squeeze(-1)
    return product.cast(common) if common.is_storage else product


def _check_matmul(x: Tensor, y: Tensor) -> None:
    if not (x.ndim and y.ndim):
        scalar = describe(x if x.ndim == 0 else y)
        raise ShapeError(f"matmul: {scalar} has no dims; use * for scalars")
    inner = x.extents[-1], y.extents[max(y.ndim - 2, 0)]
    if inner[0] != inner[1]:
        shapes = " @ ".join(f"({', '.join(map(str, each.extents))})" for each in (x, y))
        raise ShapeError(f"matmul: inner dims differ: {shapes}; {inner[0]} != {inner[1]}")


def sum_products(x: Tensor, y: Tensor, *dims: int) -> Tensor:
    """`sum(x * y)` over dims of their common shape: the form that compiles to a contraction."""
    product = x * y
    graph, value = product.graph, product.value
    for dim in sorted((d % product.ndim for d in dims), reverse=True):
        value = graph.builder.sum(value, dim)
    return graph.wrap(value)


# --- windows --------------------------------------------------------------------------------------


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _windows(what: str, x: Tensor, kernel: tuple[int, int], stride: Pair, dilation: Pair) -> Tensor:
    """Windows over the last two dims: (..., oh, ow, kh, kw)."""
    first = x.ndim - 2
    for k, (size, step, gap) in enumerate(zip(kernel, _pair(stride), _pair(dilation), strict=True)):
        axis = first + k
        span = gap * (size - 1) + 1
        fits = const(span) <= x.extents[axis]
        x.graph.require(fits, f"{what}: the window's extent in dim {axis}")
        count = (x.extents[axis] - span) // step + 1
        view = views.window(x.extents, axis, const(size), const(step), const(gap), count)
        x = view_of(x, view)
    return x


def _padded(x: Tensor, padding: Pair, value: float) -> Tensor:
    """`x` with `padding` on both sides of its last two dims."""
    if _pair(padding) == (0, 0):
        return x
    return pad(x, [(0, 0)] * (x.ndim - 2) + [(p, p) for p in _pair(padding)], value)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of x (batch, in, h, w) with weight (out, in/groups, kh, kw), as PyTorch."""
    _check_conv(x, weight, groups)
    common = promotion((x, weight))
    work = _product_dtype(common)
    out, inner, height, width = (n.value for n in weight.extents)
    padded = _padded(x.cast(work), padding, 0)
    windows = _windows("conv2d", padded, (height, width), stride, dilation)
    batch, _, oh, ow = windows.extents[:4]
    # (batch, groups, out / groups, oh, ow, in / groups, kh, kw)
    patches = reshape(windows, batch, groups, inner, 1, oh, ow, height, width)
    patches = patches.permute(0, 1, 3, 4, 5, 2, 6, 7)
    kernels = reshape(weight.cast(work), groups, out // groups, 1, 1, inner, height, width)
    result = reshape(sum_products(patches, kernels, 5, 6, 7), batch, out, oh, ow)
    if bias is not None:
        result = result + reshape(bias, out, 1, 1).cast(work)
    return result.cast(common) if common.is_storage else result


def _check_conv(x: Tensor, weight: Tensor, groups: int) -> None:
    if x.ndim != 4 or weight.ndim != 4:
        raise ShapeError(
            f"conv2d: takes (batch, in, h, w) and (out, in, kh, kw); "
            f"got {describe(x)} and {describe(weight)}"
        )
    if x.extents[1] != weight.extents[1] * groups or weight.extents[0].exact_div(groups) is None:
        raise ShapeError(
            f"conv2d: {describe(weight)} in {groups} groups takes "
            f"{weight.extents[1] * groups} channels; {describe(x)} has {x.extents[1]}"
        )


def max_pool2d(
    x: Tensor, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, dilation: Pair = 1
) -> Tensor:
    """The greatest of each window of the last two dims; `stride` defaults to the window's size."""
    kernel = _pair(kernel_size)
    _check_pool("max_pool2d", kernel, padding)
    padded = _padded(x, padding, x.dtype.lowest)
    steps = kernel if stride is None else stride
    return amax(_windows("max_pool2d", padded, kernel, steps, dilation), (-2, -1))


def avg_pool2d(
    x: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair = 0,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of the last two dims; integers give float32.

    Padding counts as zeros unless `count_include_pad` is False.
    """
    kernel = _pair(kernel_size)
    _check_pool("avg_pool2d", kernel, padding)
    steps = kernel if stride is None else stride
    work = x.cast(dtypes.promote(x.dtype.compute, dtypes.float32))

    def total(values: Tensor) -> Tensor:
        padded = _padded(values, padding, 0)
        return sum_over(_windows("avg_pool2d", padded, kernel, steps, 1), (-2, -1))

    if count_include_pad:
        mean = total(work) / (kernel[0] * kernel[1])
    else:
        mean = total(work) / total(x.graph.ones(x.extents[-2:], work.dtype))
    return mean.cast(x.dtype) if x.dtype.is_storage else mean


def _check_pool(what: str, kernel: tuple[int, int], padding: Pair) -> None:
    if any(2 * p > k for p, k in zip(_pair(padding), kernel, strict=True)):
        raise ShapeError(f"{what}: padding {padding} exceeds half of the window {kernel}")

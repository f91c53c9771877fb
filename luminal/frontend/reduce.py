"""Reductions, and the functions made of them: softmax, norms. One Sum or Max node per dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from luminal import dtypes
from luminal.errors import ShapeError
from luminal.frontend.binary import sub, where
from luminal.frontend.handle import axes_of, axis_of, describe, in_float, numpy_names
from luminal.frontend.movement import concat
from luminal.shape.expression import Expression, const, product_of
from luminal.shape.expression import maximum as greater

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Dims: TypeAlias = int | Sequence[int] | None


class Extreme(NamedTuple):
    """What `max(dim)` and `min(dim)` give: the values, and where each first occurs (int64)."""

    values: Tensor
    indices: Tensor


def _reduced(x: Tensor, op: str, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """`op` ("sum" or "max") over `axes`, the last one first."""
    builder, value = x.graph.builder, x.value
    for axis in reversed(axes):
        value = builder.sum(value, axis) if op == "sum" else builder.max(value, axis)
    result = x.graph.wrap(value)
    return result.unsqueeze(axes) if keepdim and axes else result


def _count(x: Tensor, axes: tuple[int, ...]) -> Expression:
    """How many elements one result of a reduction over `axes` comes from."""
    return product_of(x.extents[axis] for axis in axes)


def _number(x: Tensor, n: Expression) -> Tensor:
    """`n` in x's dtype, as a 0-d Tensor."""
    return x.graph.constant(n.value if n.is_const else n, x.dtype)


# --- sums -----------------------------------------------------------------------------------------


@numpy_names
def sum(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The sum over `dim` (an int, several, or None: all); 0 of nothing.

    Bools and narrow integers give int64 (uint64); 16-bit floats are added in float32.
    """
    axes = axes_of("sum", dim, x.ndim)
    wanted = x.dtype if dtype is None else dtypes.dtype_of(dtype)
    total = _reduced(x.cast(dtypes.accumulator(wanted)), "sum", axes, keepdim)
    return total.cast(wanted) if wanted.is_storage or dtype is not None else total


@numpy_names
@in_float
def mean(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The arithmetic mean; integers give float32, NaN of nothing."""
    axes = axes_of("mean", dim, x.ndim)
    return sum(x, axes, keepdim) / _number(x, _count(x, axes))


@numpy_names
@in_float
def var(x: Tensor, dim: Dims = None, correction: int = 1, keepdim: bool = False) -> Tensor:
    """The variance in two passes, divided by n - correction (1: unbiased, as PyTorch; 0: NumPy)."""
    axes = axes_of("var", dim, x.ndim)
    centred = x - mean(x, axes, keepdim=True)
    freedom = greater(const(0), _count(x, axes) - correction)
    return sum(centred * centred, axes, keepdim) / _number(x, freedom)


@numpy_names
def std(x: Tensor, dim: Dims = None, correction: int = 1, keepdim: bool = False) -> Tensor:
    """The square root of `var`."""
    return var(x, dim, correction, keepdim).sqrt()


@numpy_names
def prod(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The product over `dim`; 1 of nothing. Narrow integers give int64 (uint64)."""
    axes = axes_of("prod", dim, x.ndim)
    result = x.cast(dtypes.accumulator(x.dtype))
    for axis in reversed(axes):
        result = _product(result, axis)
    if keepdim and axes:
        result = result.unsqueeze(axes)
    return result.cast(x.dtype) if x.dtype.is_storage else result


def _product(x: Tensor, axis: int) -> Tensor:
    """The last element of the running product, which a leading 1 lets be empty."""
    extent = x.extents[axis]
    if extent.interval.lo is None or extent.interval.lo < 1:
        one = x.graph.full((*x.extents[:axis], 1, *x.extents[axis + 1 :]), 1, x.dtype)
        x = concat((one, x), axis)
    running = x.graph.wrap(x.graph.builder.scan(x.value, "mul", axis))
    return running.select(axis, -1)


# --- extremes -------------------------------------------------------------------------------------


def _check_not_empty(what: str, x: Tensor, axes: tuple[int, ...]) -> None:
    for axis in axes:
        if x.extents[axis] == const(0):
            raise ShapeError(f"{what}: dim {axis} of {describe(x)} is empty; give it an element")


def _reversed_order(x: Tensor) -> Tensor:
    """An order-reversing copy of `x` without overflow: the complement of integers, -x of floats."""
    return -x if x.dtype.is_float else ~x


@numpy_names
def amax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The greatest value over `dim`; NaN if there is one."""
    axes = axes_of("max", dim, x.ndim)
    _check_not_empty("max", x, axes)
    work = dtypes.uint8 if x.dtype is dtypes.bool_ else x.dtype.compute
    return _reduced(x.cast(work), "max", axes, keepdim).cast(x.dtype)


@numpy_names
def amin(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The least value over `dim`; NaN if there is one."""
    axes = axes_of("min", dim, x.ndim)
    _check_not_empty("min", x, axes)
    flipped = _reversed_order(x.cast(x.dtype.compute))
    return _reversed_order(amax(flipped, axes, keepdim)).cast(x.dtype)


@numpy_names
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the greatest first occurs (int64), NaN being the greatest; None: in x flattened."""
    if dim is None:
        flat = argmax(x.flatten(), 0)
        return flat.reshape((1,) * x.ndim) if keepdim else flat
    axis = axis_of("argmax", dim, x.ndim)
    _check_not_empty("argmax", x, (axis,))
    if x.dtype is dtypes.bool_:
        x = x.cast(dtypes.uint8)
    x = x.cast(x.dtype.compute)
    hit = x == amax(x, axis, keepdim=True)
    if x.dtype.is_float:
        hit = hit | (x != x)
    last = x.extents[axis] - 1
    from_end = sub(last, x.graph.iota(x.extents, axis))
    return sub(last, _reduced(where(hit, from_end, 0), "max", (axis,), keepdim))


@numpy_names
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the least first occurs (int64), NaN counting as the least; None: in x flattened."""
    return argmax(_reversed_order(x), dim, keepdim)


@numpy_names
def max(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Without `dim` the greatest of all; with it `(values, indices)` along it, as PyTorch."""
    if dim is None:
        return amax(x, None, keepdim)
    return Extreme(amax(x, dim, keepdim), argmax(x, dim, keepdim))


@numpy_names
def min(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Without `dim` the least of all; with it `(values, indices)` along it, as PyTorch."""
    if dim is None:
        return amin(x, None, keepdim)
    return Extreme(amin(x, dim, keepdim), argmin(x, dim, keepdim))


@numpy_names
def any(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where an element over `dim` is not 0; False of nothing."""
    axes = axes_of("any", dim, x.ndim)
    truth = x.cast(dtypes.bool_).cast(dtypes.uint8)
    return _reduced(truth, "max", axes, keepdim).cast(dtypes.bool_)


@numpy_names
def all(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where no element over `dim` is 0; True of nothing."""
    return ~any(~x.cast(dtypes.bool_), dim, keepdim)


# --- softmax --------------------------------------------------------------------------------------


def _below_max(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """`x - max` and the max, which counts as a constant in derivatives."""
    top = amax(x, axis, keepdim=True).stop_gradient()
    return x - top, top


@numpy_names
@in_float
def softmax(x: Tensor, dim: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`, with the maximum subtracted first."""
    axis = axis_of("softmax", dim, x.ndim)
    e = _below_max(x, axis)[0].exp()
    return e / sum(e, axis, keepdim=True)


@numpy_names
@in_float
def log_softmax(x: Tensor, dim: int = -1) -> Tensor:
    """log(softmax(x)) along `dim`, without its underflow."""
    axis = axis_of("log_softmax", dim, x.ndim)
    below, _ = _below_max(x, axis)
    return below - sum(below.exp(), axis, keepdim=True).log()


@numpy_names
@in_float
def logsumexp(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over `dim`; -inf where every element is -inf."""
    axes = axes_of("logsumexp", dim, x.ndim)
    top = amax(x, axes, keepdim=True).stop_gradient()
    total = sum((x - top).exp(), axes, keepdim=True).log() + top
    result = where(abs(top) == np.inf, top, total)
    return result if keepdim else result.squeeze(axes)


# --- norms ----------------------------------------------------------------------------------------


@numpy_names
@in_float
def layer_norm(
    x: Tensor,
    dim: int | Sequence[int] = -1,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over `dim`, in two passes.

    `weight` and `bias` have the shape of those dims. Ba et al., arXiv 1607.06450.
    """
    axes = axes_of("layer_norm", dim, x.ndim)
    centred = x - mean(x, axes, keepdim=True)
    normal = centred * (mean(centred * centred, axes, keepdim=True) + eps).rsqrt()
    return _affine(normal, axes, weight, bias)


@numpy_names
@in_float
def rms_norm(
    x: Tensor, dim: int | Sequence[int] = -1, weight: Tensor | None = None, eps: float = 1e-6
) -> Tensor:
    """x / sqrt(mean(x * x) + eps) * weight over `dim`. Zhang and Sennrich, arXiv 1910.07467."""
    axes = axes_of("rms_norm", dim, x.ndim)
    return _affine(x * (mean(x * x, axes, keepdim=True) + eps).rsqrt(), axes, weight, None)


@in_float
def batch_norm(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    dim: int = 1,
) -> Tensor:
    """Batch norm as at inference: (x - mean) / sqrt(var + eps) * weight + bias per channel `dim`.

    The factor depends on weights only, so it is computed once per setting. arXiv 1502.03167.
    """
    axis = axis_of("batch_norm", dim, x.ndim)
    scale = (var + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    return _affine(x - _along(mean, x.ndim, (axis,)), (axis,), scale, bias)


def _along(vector: Tensor, rank: int, axes: tuple[int, ...]) -> Tensor:
    """`vector`, whose dims are `axes` of a tensor of `rank`, made to broadcast with it."""
    if vector.ndim != len(axes):
        raise ShapeError(f"norm: {describe(vector)} does not have the {len(axes)} dims {axes}")
    return vector.unsqueeze(tuple(k for k in range(rank) if k not in axes))


def _affine(x: Tensor, axes: tuple[int, ...], weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """x * weight + bias, each optional."""
    if weight is not None:
        x = x * _along(weight, x.ndim, axes)
    return x if bias is None else x + _along(bias, x.ndim, axes)

"""PyTorch functions that are a few library calls: named and called as PyTorch's.

A function here is no part of the library; the report of `make conformance` says which pass so.
`masked.*` and `signal.windows.*` are in modules of their own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import luminal as lm

Tensor = lm.Tensor


def identity(x: Tensor, *_: Any, **__: Any) -> Tensor:
    """For ops about storage, aliasing and complex conjugates of real numbers."""
    return x


clone = contiguous = conj = conj_physical = resolve_conj = resolve_neg = real = alias_copy = (
    identity
)

# --- pointwise ------------------------------------------------------------------------------------


def clamp_min(x: Tensor, low: Any) -> Tensor:
    return x.maximum(low)


def clamp_max(x: Tensor, high: Any) -> Tensor:
    return x.minimum(high)


def rsub(x: Tensor, other: Any, alpha: float = 1) -> Tensor:
    return other - x * alpha


def add(x: Any, other: Any, alpha: float = 1) -> Tensor:
    return x + other * alpha


def sub(x: Any, other: Any, alpha: float = 1) -> Tensor:
    return x - other * alpha


def float_power(x: Tensor, exponent: Any) -> Tensor:
    exponent = exponent.cast("float64") if isinstance(exponent, Tensor) else exponent
    return x.cast("float64") ** exponent


def angle(x: Tensor) -> Tensor:
    return lm.where(x != x, x, lm.where(x < 0, math.pi, 0.0))


def isreal(x: Tensor) -> Tensor:
    return lm.ones(x.shape, lm.bool_)


def fill(x: Tensor, value: Any) -> Tensor:
    return (
        lm.where(True, value, x) if isinstance(value, Tensor) else lm.full(x.shape, value, x.dtype)
    )


def zero(x: Tensor) -> Tensor:
    return lm.zeros(x.shape, x.dtype)


def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    return x * 2.0**exponent


def allclose(x: Tensor, other: Tensor, **how: Any) -> Tensor:
    return x.isclose(other, **how).all()


def equal(x: Tensor, other: Tensor) -> Any:
    return (x == other).all() if x.shape == other.shape else False


def isin(x: Tensor, values: Tensor, invert: bool = False, **_: Any) -> Tensor:
    found = (x.unsqueeze(-1) == values.flatten()).any(-1)
    return ~found if invert else found


def special_entr(x: Tensor) -> Tensor:
    return lm.where(x > 0, -x * x.log(), lm.where(x == 0, 0.0, lm.where(x < 0, -math.inf, x)))


def special_ndtr(x: Tensor) -> Tensor:
    return (x * -math.sqrt(0.5)).erfc() * 0.5


def native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    return lm.where(mask, grad * scale, 0.0)


def softmax_backward_data(grad: Tensor, output: Tensor, dim: int, dtype: Any) -> Tensor:
    return output * (grad - (grad * output).sum(dim, keepdim=True))


def torch_ops_aten__safe_softmax_default(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    x = x if dtype is None else x.cast(dtype)
    masked = (x == -math.inf).all(dim, keepdim=True)
    return lm.where(masked, 0.0, x.softmax(dim))


def to(x: Tensor, *args: Any, dtype: Any = None, **_: Any) -> Tensor:
    """`args` may hold a device, a dtype or a tensor, and flags about copying."""
    for each in args:
        if isinstance(each, lm.DType | Tensor):
            dtype = each if isinstance(each, lm.DType) else each.dtype
    return x if dtype is None else x.cast(dtype)


# --- shapes ---------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: Any) -> Any:
    tensors = lm.broadcast_tensors(*(lm.zeros((s,) if isinstance(s, int) else s) for s in shapes))
    return torch.Size(tensors[0].shape)


def sum_to_size(x: Tensor, *size: Any) -> Tensor:
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    lead = x.ndim - len(shape)
    dims = [*range(lead), *(k + lead for k, n in enumerate(shape) if n == 1)]
    return (x.sum(dims, keepdim=True) if dims else x).reshape(shape)


def as_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0
) -> Tensor:
    return x.flatten()[_strided(size, stride, storage_offset)]


as_strided_copy = as_strided


def as_strided_scatter(
    x: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0
) -> Tensor:
    places = _strided(size, stride, storage_offset).flatten()
    return x.flatten().scatter(0, places, src.flatten()).reshape(x.shape)


def _strided(size: Sequence[int], stride: Sequence[int], offset: int) -> Any:
    places = np.full(tuple(size), offset, np.int64)
    for axis, step in enumerate(stride):
        count = [1] * len(size)
        count[axis] = size[axis]
        places = places + np.arange(size[axis]).reshape(count) * step
    return places


def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if x.ndim == 0:
        return x.reshape(1)
    dim %= x.ndim
    starts = range(0, x.shape[dim] - size + 1, step)
    return lm.stack([x.narrow(dim, k, size) for k in starts], dim).movedim(dim + 1, -1)


unfold_copy = unfold


def resize_(x: Tensor, shape: Sequence[int]) -> Tensor:
    count = math.prod(shape)
    return x.flatten()[:count].reshape(shape)


def resize_as_(x: Tensor, other: Tensor) -> Tensor:
    return resize_(x, other.shape)


def expand_copy(x: Tensor, shape: Any) -> Tensor:
    return x.expand(shape)


def permute_copy(x: Tensor, dims: Any) -> Tensor:
    return x.permute(dims)


def unsafe_chunk(x: Tensor, chunks: int, dim: int = 0) -> Any:
    return x.chunk(chunks, dim)


def unsafe_split(x: Tensor, size: Any, dim: int = 0) -> Any:
    return x.split(size, dim)


split_with_sizes = split_with_sizes_copy = unsafe_split


def slice(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    key: list[Any] = [_python_slice(None)] * x.ndim
    key[dim] = _python_slice(start, end, step)
    return x[tuple(key)]


_python_slice = type(np.s_[:1])


def constant_pad_nd(x: Tensor, pad: Any, value: float = 0) -> Tensor:
    return x.pad(pad, "constant", value)


def chunk_cat(tensors: Sequence[Tensor], dim: int, chunks: int) -> Tensor:
    parts = []
    for x in tensors:
        axis = dim % x.ndim
        extent = x.shape[axis]
        size = -(-extent // chunks)
        pairs = [(0, 0)] * x.ndim
        pairs[axis] = (0, size * chunks - extent)
        x = lm.pad(x, pairs)
        shape = (*x.shape[:axis], chunks, -1)
        parts.append(x.reshape(shape))
    return lm.concat(parts, -1)


def fft_fftshift(x: Tensor, dim: Any = None) -> Tensor:
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return x.roll([x.shape[d] // 2 for d in dims], list(dims))


def fft_ifftshift(x: Tensor, dim: Any = None) -> Tensor:
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return x.roll([-(x.shape[d] // 2) for d in dims], list(dims))


def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(x.shape[0]), r))
    if r == 0:
        return x[:0]
    return x[np.array(rows, np.int64).reshape(-1, r)]


# --- sums and differences -------------------------------------------------------------------------


def diff(x: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    if n == 0:
        return x
    parts = [part for part in (prepend, x, append) if part is not None]
    x = lm.concat(parts, dim) if len(parts) > 1 else x
    for _ in range(n):
        extent = x.shape[dim]
        if extent < 1:
            return x
        x = x.narrow(dim, 1, extent - 1) - x.narrow(dim, 0, extent - 1)
    return x


def trapezoid(y: Tensor, x: Any = None, dx: float = 1.0, dim: int = -1) -> Tensor:
    return _trapezoids(y, x, dx, dim).sum(dim)


def cumulative_trapezoid(y: Tensor, x: Any = None, dx: float = 1.0, dim: int = -1) -> Tensor:
    return _trapezoids(y, x, dx, dim).cumsum(dim)


trapz = trapezoid


def _trapezoids(y: Tensor, x: Any, dx: float, dim: int) -> Tensor:
    extent = y.shape[dim]
    if x is not None:
        if x.ndim == 1:
            shape = [1] * y.ndim
            shape[dim] = -1
            x = x.reshape(shape)
        dx = diff(x, dim=dim)  # type: ignore[assignment]
    return (y.narrow(dim, 1, extent - 1) + y.narrow(dim, 0, extent - 1)) * dx / 2


def cov(x: Tensor, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    x = x.reshape(1, -1) if x.ndim < 2 else x
    single = x.shape[0] == 1
    weights = None
    if fweights is not None:
        weights = fweights.cast("float32")
    if aweights is not None:
        weights = aweights if weights is None else weights * aweights
    total: Any = x.shape[1] if weights is None else weights.sum()
    mean = (x.sum(1) if weights is None else (x * weights).sum(1)) / total
    centred = x - mean.unsqueeze(1)
    if aweights is None or not correction:
        norm = total - correction
    else:
        norm = total - correction * (weights * aweights).sum() / total
    norm = lm.maximum(norm, 0.0) if isinstance(norm, Tensor) else max(norm, 0)
    product = (centred if weights is None else centred * weights) @ centred.mT / norm
    return product.reshape(()) if single else product


def corrcoef(x: Tensor) -> Tensor:
    c = cov(x)
    if c.ndim == 0:
        return c / c
    deviation = c.diagonal().sqrt()
    return (c / deviation.unsqueeze(1) / deviation).clip(-1, 1)


def dist(x: Tensor, other: Tensor, p: float = 2) -> Tensor:
    return (x - other).flatten().norm(p)


def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    dims = tuple(k for k in range(x.ndim) if k != dim % x.ndim)
    norm = x.norm(p, dims, keepdim=True)
    return x * lm.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0)


def mean_and(what: str) -> Any:
    def both(x: Tensor, *args: Any, **how: Any) -> Any:
        named = dict(zip(("dim", "unbiased", "keepdim"), args, strict=False))
        if args and isinstance(args[0], bool):
            named = {"unbiased": args[0]}
        named |= how
        means = {key: named[key] for key in ("dim", "keepdim") if key in named}
        return getattr(x, what)(**named), x.mean(**means)

    return both


std_mean, var_mean = mean_and("std"), mean_and("var")

# --- products -------------------------------------------------------------------------------------


def linalg_diagonal(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    return x.diagonal(offset, dim1, dim2)


def linalg_vander(x: Tensor, N: int | None = None) -> Tensor:
    x = x.reshape(1) if x.ndim == 0 else x
    count = x.shape[-1] if N is None else N
    return lm.stack([x**k for k in range(count)], -1)


def nn_functional_pdist(x: Tensor, p: float = 2) -> Tensor:
    rows, columns = np.triu_indices(x.shape[0], 1)
    difference = x[rows] - x[columns]
    return difference.norm(p, -1)


# --- layers ---------------------------------------------------------------------------------------


def nn_functional_upsample_nearest(x: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    return lm.nn.functional.interpolate(x, size, scale_factor, "nearest")


def nn_functional_upsample_bilinear(
    x: Tensor, size: Any = None, scale_factor: Any = None
) -> Tensor:
    return lm.nn.functional.interpolate(x, size, scale_factor, "bilinear", True)


def grid_sampler_2d(x: Tensor, places: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    return lm.nn.functional.grid_sample(x, places, modes[mode], paddings[padding], align)


grid_sampler_3d = grid_sampler_2d


def native_layer_norm(x: Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    scale = (x.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    result = lm.nn.functional.layer_norm(x, shape, weight, bias, eps)
    return result, x.mean(dims, keepdim=True), scale


def native_group_norm(
    x: Tensor, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float
) -> Any:
    grouped = x.reshape(n, groups, c // groups * hw)
    mean, scale = grouped.mean(-1), (grouped.var(-1, correction=0) + eps).rsqrt()
    return x.group_norm(groups, weight, bias, eps), mean, scale


def nn_functional_dropout(x: Tensor, p: float = 0.5, training: bool = True, **_: Any) -> Tensor:
    return lm.random.dropout(x, p, lm.random.key(0)) if training else x


# --- random numbers: the library's own, so only their type and range agree ------------------------


def cauchy(x: Tensor, median: float = 0, sigma: float = 1) -> Tensor:
    return median + sigma * (math.pi * (_uniform(x) - 0.5)).tan()


def exponential(x: Tensor, rate: float = 1) -> Tensor:
    return -(-_uniform(x)).log1p() / rate


def geometric(x: Tensor, p: float) -> Tensor:
    return ((-_uniform(x)).log1p() / math.log1p(-p)).ceil().maximum(1.0)


def log_normal(x: Tensor, mean: float = 1, std: float = 2) -> Tensor:
    return lm.random.normal(lm.random.key(0), x.shape, mean, std).exp()


def _uniform(x: Tensor) -> Tensor:
    return lm.random.uniform(lm.random.key(0), x.shape, dtype=x.dtype)

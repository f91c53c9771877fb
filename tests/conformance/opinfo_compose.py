"""PyTorch functions that are a few library calls: named and called as PyTorch's.

A function here is no part of the library; the report of `make conformance` says which pass so.
`masked.*` and `signal.windows.*` are in modules of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import luminal as lm

Tensor = lm.Tensor


def alias_copy(x: Tensor) -> Tensor:
    return x


# --- pointwise ------------------------------------------------------------------------------------


def fill(x: Tensor, value: Any) -> Tensor:
    return (
        lm.where(True, value, x) if isinstance(value, Tensor) else lm.full(x.shape, value, x.dtype)
    )


def zero(x: Tensor) -> Tensor:
    return lm.zeros(x.shape, x.dtype)


def native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    return lm.where(mask, grad * scale, 0.0)


def softmax_backward_data(grad: Tensor, output: Tensor, dim: int, dtype: Any) -> Tensor:
    return output * (grad - (grad * output).sum(dim, keepdim=True))


def torch_ops_aten__safe_softmax_default(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    x = x if dtype is None else x.cast(dtype)
    masked = (x == -math.inf).all(dim, keepdim=True)
    return lm.where(masked, 0.0, lm.where(masked, 0.0, x).softmax(dim))


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


def permute_copy(x: Tensor, dims: Any) -> Tensor:
    return x.permute(dims)


def split_with_sizes_copy(x: Tensor, sizes: Any, dim: int = 0) -> Any:
    return x.split(sizes, dim)


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


# --- layers ---------------------------------------------------------------------------------------


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


def with_key(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that draws, with a key."""

    def call(*args: Any, **how: Any) -> Tensor:
        return function(*args, key=lm.random.key(0), **how)

    return call


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

"""Tensors from numbers and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import luminal as lm
from luminal.torch_backend.ops.registry import row

Tensor = lm.Tensor


@row("full")
def full(size: Sequence[Any], value: Any, dtype: Any = None) -> Tensor:
    return lm.full(tuple(size), value, dtype)


@row("full_like")
def full_like(x: Tensor, value: Any, dtype: Any = None) -> Tensor:
    return lm.full(x.shape, value, dtype or x.dtype)


@row("new_full")
def new_full(x: Tensor, size: Sequence[Any], value: Any, dtype: Any = None) -> Tensor:
    return lm.full(tuple(size), value, dtype or x.dtype)


@row("zeros", "_efficientzerotensor", "empty", "empty_permuted", "empty_strided")
def zeros(size: Sequence[Any], *order: Any, dtype: Any = None) -> Tensor:
    return lm.zeros(tuple(size), dtype or lm.float32)


@row("ones")
def ones(size: Sequence[Any], dtype: Any = None) -> Tensor:
    return lm.ones(tuple(size), dtype or lm.float32)


@row("zeros_like", "empty_like", "zero")
def zeros_like(x: Tensor, dtype: Any = None) -> Tensor:
    return lm.zeros(x.shape, dtype or x.dtype)


@row("ones_like")
def ones_like(x: Tensor, dtype: Any = None) -> Tensor:
    return lm.ones(x.shape, dtype or x.dtype)


@row("new_zeros", "new_empty", "new_empty_strided")
def new_zeros(x: Tensor, size: Sequence[Any], *strides: Any, dtype: Any = None) -> Tensor:
    return lm.zeros(tuple(size), dtype or x.dtype)


@row("new_ones")
def new_ones(x: Tensor, size: Sequence[Any], dtype: Any = None) -> Tensor:
    return lm.ones(tuple(size), dtype or x.dtype)


@row("scalar_tensor")
def scalar_tensor(value: Any, dtype: Any = None) -> Tensor:
    return lm.constant(value, dtype or lm.float32)


@row("arange.start_step")
def arange(start: Any, end: Any, step: Any = 1, dtype: Any = None) -> Tensor:
    # In int64 PyTorch cuts all three off before it counts, in narrower integers it counts floats.
    cut = bool if dtype is not lm.int64 else bool | float
    start, end, step = (int(n) if isinstance(n, cut) else n for n in (start, end, step))
    return lm.arange(start, end, step, dtype)


@row("eye")
def eye(n: Any, m: Any = None, dtype: Any = None) -> Tensor:
    return lm.eye(n, m, dtype=dtype or lm.float32)


@row("linspace.default")
def linspace(start: Any, end: Any, steps: Any, dtype: Any = None) -> Tensor:
    if steps == 1:  # whatever the end is
        return lm.full((1,), start, dtype or lm.float32)
    return lm.linspace(start, end, steps, dtype or lm.float32)

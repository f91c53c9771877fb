"""The tensors of a call: how outputs are made once open sizes are known, and views of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._C._dynamo.guards import _reinterpret_tensor  # type: ignore[attr-defined]

from luminal.memory.alignment import ACCESS
from luminal.shape.expression import Expression
from luminal.torch_backend.plans import Derived, OutputPlan, Spread

Made = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""How an output's tensor is made: sizes, strides, dtype."""


def aligned(x: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it where it does not start at what kernels of a device access at
    once.
    """
    return x.clone() if x.data_ptr() % ACCESS else x


def empty_on(
    device: torch.device, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """A tensor that nothing has written."""
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


def making(plan: OutputPlan, sizes: Mapping[str, int]) -> Made:
    """How the tensor of an output is made."""
    size = tuple(value(n, sizes) for n in plan.shape)
    # Dense in the order of eager mode's strides; an extent of 0 counts as 1, as PyTorch has it.
    stride, step = [0] * len(size), 1
    for k in reversed(plan.order):
        stride[k] = step
        step *= max(size[k], 1)
    for k, eager in plan.of_ones:
        stride[k] = eager
    return size, tuple(stride), plan.dtype


def viewing(view: Derived | Spread, sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """What a result that views an output is made of, or, of a spread one, how it is made."""
    if isinstance(view, Spread):
        shape, strides = (tuple(value(n, sizes)) for n in (view.dense.shape, view.strides))
        return shape, strides, view.dense.dtype
    return tuple(value(n, sizes) for n in (view.shape, view.strides, view.offset))


def value(n: Any, sizes: Mapping[str, int]) -> Any:
    """Arguments with open sizes known."""
    if isinstance(n, list | tuple):
        return [value(entry, sizes) for entry in n]
    return n.evaluate(sizes) if isinstance(n, Expression) else n


def retyped(
    dtype: torch.dtype, x: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> torch.Tensor:
    """Reads the same memory as elements of another dtype."""
    flat = _reinterpret_tensor(x, (x.numel(),), (1,), 0).view(dtype)
    view: torch.Tensor = _reinterpret_tensor(flat, sizes, strides, offset)
    return view


def viewed(calls: Sequence[Any], x: torch.Tensor, sizes: Mapping[str, int]) -> torch.Tensor:
    """The tensor after these calls of operators that make views."""
    for function, others, named in calls:
        x = function(x, *value(others, sizes), **named)
    return x

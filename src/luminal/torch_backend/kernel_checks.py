"""Calls that PyTorch's kernels refuse, which its decompositions and tensors without data let pass.

They are left to PyTorch, which raises for them as in eager mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any

import torch

Operator = Any
"""An OpOverload, which PyTorch does not type."""

# Numbers that kernels convert to the dtype of their tensor; `other`, `exponent` and the like are
# computed with, and may be anything.
_CONVERTED = frozenset(
    "alpha beta value fill fill_value s min max min_val max_val lambd negative_slope weight margin "
    "lower upper threshold scale input_scale".split()
)

_NEED_PIXELS = frozenset(
    ["_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "grid_sampler_2d", "grid_sampler_3d"]
)


def refusal(op: Operator, args: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Why the kernel refuses a call, as far as it is known before a run; empty if nothing is."""
    first = next((x for x in args if isinstance(x, torch.Tensor)), None)
    if _name(op) in _NEED_PIXELS and first is not None and any(n == 0 for n in first.shape[1:]):
        return f"{op}: of no pixels"
    for position, name in _numbers(op):
        number = args[position] if position < len(args) else named.get(name)
        dtype = named.get("dtype") or _dtype(op, first, number)
        if _is_beyond(number, dtype):
            return f"{op}: {name} {number} is beyond {dtype}"
    return ""


def left_if_refused(op: Operator, function: Callable[..., Any]) -> Callable[..., Any]:
    """A decomposition that leaves whole what the kernel refuses."""
    if not _numbers(op):
        return function

    @wraps(function)
    def taken_apart(*args: Any, **named: Any) -> Any:
        return NotImplemented if refusal(op, args, named) else function(*args, **named)

    return taken_apart


@cache
def may_refuse(op: Operator) -> bool:
    """Is there anything to look at?"""
    return isinstance(op, torch._ops.OpOverload) and bool(_numbers(op) or _name(op) in _NEED_PIXELS)


def _name(op: Operator) -> str:
    return str(op._schema.name).rpartition("::")[2]


@cache
def _numbers(op: Operator) -> tuple[tuple[int, str], ...]:
    """The numbers that are converted: where they stand, and their names."""
    return tuple(
        (position, each.name)
        for position, each in enumerate(op._schema.arguments)
        if each.name in _CONVERTED and str(each.type) in ("number", "Optional[number]")
    )


def _dtype(op: Operator, first: torch.Tensor | None, number: Any) -> torch.dtype:
    if first is None:
        return torch.int64 if isinstance(number, int) else torch.get_default_dtype()
    if _name(op).startswith("clamp") and isinstance(number, int | float):
        return torch.result_type(first, number)
    return first.dtype


def _is_beyond(number: Any, dtype: torch.dtype) -> bool:
    """Of unsigned integers the negative ones wrap."""
    if not isinstance(number, int | float) or dtype is torch.bool or dtype.is_complex:
        return False
    if dtype.is_floating_point:
        return math.isfinite(number) and abs(number) > torch.finfo(dtype).max
    limits = torch.iinfo(dtype)
    return not (limits.min or -limits.max) <= number <= limits.max  # NaN is beyond, too

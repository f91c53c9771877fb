"""What AOTAutograd takes apart: all that has no row in the table, by PyTorch's decompositions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table

from luminal.torch_backend.foreach import taken_apart
from luminal.torch_backend.kernel_checks import left_if_refused
from luminal.torch_backend.ops.registry import find


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions of operators, by operator."""
    theirs = {
        operator: left_if_refused(operator, function)
        for operator, function in decomposition_table.items()
        if isinstance(operator, torch._ops.OpOverload)
        and (find(operator) is None or operator in _TAKEN_APART)
        and operator not in _LEFT
    }
    ours = {operator: left_if_refused(operator, function) for operator, function in _OWN.items()}
    return {**taken_apart(), **theirs, **ours}


_aten = torch.ops.aten

_TAKEN_APART: frozenset[Any] = frozenset()

# Decompositions that would only hide what is missing: they read elements, draw otherwise, or write
# into complex tensors, which AOTAutograd does not allow.
_LEFT: frozenset[Any] = frozenset([_aten.item.default, _aten.complex.default, _aten.polar.default])


def _nansum(x: torch.Tensor, dim: Sequence[int] | None = None, *others: Any, **how: Any) -> Any:
    """The sum over no dims as that over all, which tensors without data take for one over none."""
    if dim is None or len(dim):
        return NotImplemented
    return _aten.nansum.default(x, None, *others, **how)


def _soft_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    """The loss in the input's dtype, where PyTorch's decomposition gives it in the promoted one."""
    loss = (-x * target).to(x.dtype).exp().log1p()
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


# What tensors without data, and so PyTorch's decompositions, get otherwise than its kernels.
_OWN: dict[Any, Callable[..., Any]] = {
    _aten.nansum.default: _nansum,
    _aten.soft_margin_loss.default: _soft_margin_loss,
}

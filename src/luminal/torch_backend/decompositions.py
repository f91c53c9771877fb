"""What AOTAutograd takes apart: all that has no row in the table, by PyTorch's decompositions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table

from luminal.torch_backend.kernel_checks import left_if_refused
from luminal.torch_backend.ops.registry import find


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions of operators, by operator."""
    return {
        operator: left_if_refused(operator, function)
        for operator, function in decomposition_table.items()
        if isinstance(operator, torch._ops.OpOverload)
        and (find(operator) is None or operator in _TAKEN_APART)
        and operator not in _LEFT
    }


_aten = torch.ops.aten

_TAKEN_APART: frozenset[Any] = frozenset()

# Decompositions that would only hide what is missing: they read elements, draw otherwise, or write
# into complex tensors, which AOTAutograd does not allow.
_LEFT: frozenset[Any] = frozenset([_aten.item.default, _aten.complex.default, _aten.polar.default])

"""What was recorded has the dtype and the shape that PyTorch says it has, or is refused."""

from __future__ import annotations

from typing import Any

import torch

from luminal.frontend.complex.tensor import ComplexTensor
from luminal.frontend.handle import is_tensor
from luminal.frontend.movement.views import respelled
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.sizes import Sizes
from luminal.torch_backend.types import number_type


def checked_results(target: Any, results: Any, held: Any, sizes: Sizes) -> Any:
    """What was recorded, which has the types that PyTorch says it has, its sizes as these spell
    them.
    """
    if isinstance(held, torch.Tensor):
        return _checked_tensor(target, results, held, sizes)
    if not isinstance(held, tuple | list):
        return results
    if len(results) != len(held):
        raise UnsupportedError(f"{target}: {len(results)} results, PyTorch has {len(held)}")
    return [
        result
        if result is None or not isinstance(wanted, torch.Tensor)
        else _checked_tensor(target, result, wanted, sizes)
        for result, wanted in zip(results, held, strict=True)
    ]


def _checked_tensor(target: Any, result: Any, held: torch.Tensor, sizes: Sizes) -> Any:
    if not is_tensor(result) and not isinstance(result, ComplexTensor):
        raise UnsupportedError(f"{target}: gives a {type(result).__name__}, PyTorch a tensor")
    if result.dtype is not number_type(held.dtype):
        raise UnsupportedError(f"{target}: gives {result.dtype.name}, PyTorch {held.dtype}")
    wanted = sizes.shape(held.shape)
    if result.shape == wanted:
        return result
    literal = all(isinstance(n, int) for n in (*wanted, *result.shape))
    if len(result.shape) != len(wanted) or literal:
        raise UnsupportedError(f"{target}: gives shape {result.shape}, PyTorch {wanted}")
    if isinstance(result, ComplexTensor):
        parts = (result.real, result.imag)
        return ComplexTensor(*(respelled(str(target), x, x.graph.extents(wanted)) for x in parts))
    return respelled(str(target), result, result.graph.extents(wanted))

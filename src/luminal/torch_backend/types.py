"""The dtypes that PyTorch and Luminal share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from luminal.base import dtypes
from luminal.base.complex_dtypes import ComplexDType, complex64, complex128
from luminal.base.dtypes import DType
from luminal.torch_backend.errors import UnsupportedError

_OF_TORCH: dict[torch.dtype, DType] = {getattr(torch, each.name): each for each in dtypes.ALL}
BITS = {
    torch.bfloat16: torch.uint16,
    torch.float8_e4m3fn: torch.uint8,
    torch.float8_e5m2: torch.uint8,
}
"""Integers of the same bits, for dtypes that NumPy lacks."""
_TO_TORCH = {ours: theirs for theirs, ours in _OF_TORCH.items()}


def dtype_of(dtype: torch.dtype) -> DType:
    """Luminal's dtype; raises UnsupportedError for complex, quantised and odd short ones."""
    counterpart = _OF_TORCH.get(dtype)
    if counterpart is None:
        raise UnsupportedError(f"{dtype}: Luminal has no such dtype")
    return counterpart


_COMPLEX = {torch.complex64: complex64, torch.complex128: complex128}


def number_type(dtype: torch.dtype) -> DType | ComplexDType:
    """Luminal's dtype, or what a ComplexTensor of this dtype has; raises UnsupportedError for
    others.
    """
    return _COMPLEX.get(dtype) or dtype_of(dtype)


def as_real(x: torch.Tensor) -> torch.Tensor:
    """The tensor as it lies in memory: a complex one as pairs, (..., 2)."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def torch_dtype(dtype: DType) -> torch.dtype:
    """PyTorch's dtype of the same elements."""
    return _TO_TORCH[dtype]


def tensor_over(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor in the memory of a contiguous array."""
    dtype: torch.dtype = getattr(torch, array.dtype.name)
    if dtype in BITS:
        return torch.from_numpy(array.view(f"u{array.itemsize}")).view(dtype)
    return torch.from_numpy(array)

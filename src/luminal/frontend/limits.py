"""What can be asked of dtypes: their limits, and what they promote to. Names are PyTorch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from luminal import dtypes
from luminal.dtypes import DType
from luminal.errors import DTypeError
from luminal.frontend.binary import promotion
from luminal.frontend.handle import Operand

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

_KINDS = {"bool": 0, "uint": 1, "int": 1, "float": 2}


def finfo(dtype: DType | Tensor | Any = dtypes.float32) -> Any:
    """The limits of a float dtype: `bits`, `eps`, `max`, `min`, `tiny`, `smallest_normal`.

    Raises DTypeError for another dtype.
    """
    found = dtypes.dtype_of(dtype)
    if not found.is_float:
        raise DTypeError(f"finfo: {found} is no float; lm.iinfo has the limits of integers")
    return ml_dtypes.finfo(found.numpy)  # type: ignore[no-untyped-call]


def iinfo(dtype: DType | Tensor | Any) -> np.iinfo[Any]:
    """The limits of an integer dtype: `bits`, `max`, `min`. Raises DTypeError for another one."""
    found = dtypes.dtype_of(dtype)
    if not found.is_int:
        raise DTypeError(f"iinfo: {found} is no integer; lm.finfo has the limits of floats")
    return np.iinfo(found.numpy)


def promote_types(a: DType | Any, b: DType | Any) -> DType:
    """The dtype of what two tensors of these dtypes make."""
    return dtypes.promote(dtypes.dtype_of(a), dtypes.dtype_of(b))


def result_type(*operands: Operand) -> DType:
    """The dtype of what these Tensors and numbers make: numbers count by their kind only."""
    return promotion(operands)


def can_cast(source: DType | Any, result: DType | Any) -> bool:
    """Is the second dtype of the first one's kind, or a higher one: bool, integers, floats?"""
    return _KINDS[dtypes.dtype_of(source).kind] <= _KINDS[dtypes.dtype_of(result).kind]

"""PyTorch's older constructors: `lm.FloatTensor(2, 3)`, `lm.LongTensor([1, 2])`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.frontend.tensor import Tensor
from luminal.session.default_graph import empty, tensor

CONSTRUCTORS = {
    "BoolTensor": dtypes.bool_,
    "ByteTensor": dtypes.uint8,
    "DoubleTensor": dtypes.float64,
    "FloatTensor": dtypes.float32,
    "HalfTensor": dtypes.float16,
    "IntTensor": dtypes.int32,
    "LongTensor": dtypes.int64,
}
"""Attributes of `luminal` that are left out of `from luminal import *`."""


def constructor(name: str) -> Callable[..., Tensor]:
    """The function of one of these names: of ints or a tuple of them, which are a shape, it gives
    zeros, and of a list or an array a Tensor of its elements.
    """
    dtype: DType = CONSTRUCTORS[name]

    def made(*shape_or_data: Any) -> Tensor:
        if len(shape_or_data) == 1 and not isinstance(shape_or_data[0], int | tuple):
            return tensor(shape_or_data[0], dtype)
        return empty(*shape_or_data, dtype=dtype)

    made.__name__ = made.__qualname__ = name
    return made

"""The type of a value: its shape and dtype."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from luminal.base.dtypes import DType
from luminal.hlir.attributes import Shape
from luminal.shape.arithmetic import CACHE


class TensorType(NamedTuple):
    """The shape (Expressions) and dtype of one value."""

    shape: Shape
    dtype: DType

    def __str__(self) -> str:
        return f"{self.dtype.short}[{', '.join(map(str, self.shape))}]"


@lru_cache(CACHE)
def type_of(shape: Shape, dtype: DType) -> TensorType:
    """The one object for this type, so that passes can tell types apart by identity first."""
    return TensorType(shape, dtype)

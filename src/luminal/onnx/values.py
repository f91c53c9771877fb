"""What flows along the edges of a model: Tensors, and what ONNX has beside them.

A sequence is a list, an optional that holds nothing is None. Elements of narrow dtypes (8-bit and
4-bit floats, 2-bit and 4-bit integers) are held as their codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.onnx.errors import UnsupportedError

Array = np.ndarray[Any, Any]

BY_NUMBER: dict[int, DType] = {
    1: dtypes.float32,
    2: dtypes.uint8,
    3: dtypes.int8,
    4: dtypes.uint16,
    5: dtypes.int16,
    6: dtypes.int32,
    7: dtypes.int64,
    9: dtypes.bool_,
    10: dtypes.float16,
    11: dtypes.float64,
    12: dtypes.uint32,
    13: dtypes.uint64,
    16: dtypes.bfloat16,
}
"""Dtypes by their numbers in TensorProto."""

NARROW: dict[int, np.dtype[Any]] = {
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
    21: np.dtype(ml_dtypes.uint4),
    22: np.dtype(ml_dtypes.int4),
    23: np.dtype(ml_dtypes.float4_e2m1fn),
    24: np.dtype(ml_dtypes.float8_e8m0fnu),
    25: np.dtype(ml_dtypes.uint2),
    26: np.dtype(ml_dtypes.int2),
}
"""Narrow dtypes by their numbers: NumPy holds an element a byte."""

BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
OTHERS = {8: "strings", 14: "complex64", 15: "complex128"}

NUMBERS = {dtype.numpy: number for number, dtype in BY_NUMBER.items()}
NARROW_NUMBERS = {dtype: number for number, dtype in NARROW.items()}


@dataclass(frozen=True, slots=True)
class Coded:
    """A tensor of a narrow dtype: `codes` (uint8) holds the bits of an element each."""

    codes: Tensor
    number: int

    @property
    def bits(self) -> int:
        """How many of the eight bits count."""
        return BITS.get(self.number, 8)


Value: TypeAlias = "Tensor | Coded | list[Any] | None"


def dtype_of_number(number: int) -> DType:
    """The dtype of a number of TensorProto; raises UnsupportedError for those we lack."""
    dtype = BY_NUMBER.get(number)
    if dtype is None:
        narrow = NARROW.get(number)
        name = narrow.name if narrow is not None else OTHERS.get(number, f"element type {number}")
        raise UnsupportedError(f"elements of {name}; supported are {_names()}")
    return dtype


def _names() -> str:
    return ", ".join(dtype.name for dtype in BY_NUMBER.values())


def number_of(value: Tensor | Coded) -> int:
    """The number of the dtype in TensorProto."""
    return value.number if isinstance(value, Coded) else NUMBERS[value.dtype.numpy]


def codes_of(array: Array) -> Array:
    """The bits of each element of a narrow dtype, as uint8."""
    bits = BITS.get(NARROW_NUMBERS[array.dtype], 8)
    return np.ascontiguousarray(array).view(np.uint8) & np.uint8((1 << bits) - 1)


def array_of_codes(codes: Array, number: int) -> Array:
    """Elements of a narrow dtype, of their bits."""
    return codes.view(NARROW[number])


def mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A value with every Tensor in it replaced."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Coded):
        return Coded(function(value.codes), value.number)
    if isinstance(value, list):
        return [mapped(function, item) for item in value]
    return value


def flattened(name: str, value: Any) -> Iterable[tuple[str, Array]]:
    """The arrays in an input, by the names of their Inputs."""
    if isinstance(value, list):
        for k, item in enumerate(value):
            yield from flattened(f"{name}[{k}]", item)
    elif value is not None:
        yield name, value


def tensors(value: Any) -> Iterator[Tensor]:
    """Every Tensor in a value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Coded):
        yield value.codes
    elif isinstance(value, list):
        for item in value:
            yield from tensors(item)

"""`lm.array_api`: the namespace of the Python array API standard (2024.12), for eager use.

Operations on its Arrays are recorded, and compiled and run when elements are asked for; a chain of
operations compiles once for its dtypes and shapes. With Tensors in the place of Arrays its
functions record into their graph, in the standard's sense where PyTorch's differs.
"""

from __future__ import annotations

from math import e, inf, nan, pi
from typing import NoReturn

from luminal.array_api import (
    creation,
    data_types,
    elementwise,
    fft,
    linalg,
    manipulation,
    searching,
    statistical,
)
from luminal.array_api.array import Array
from luminal.array_api.creation import *  # noqa: F403
from luminal.array_api.data_types import *  # noqa: F403
from luminal.array_api.elementwise import *  # noqa: F403
from luminal.array_api.inspection import __array_namespace_info__
from luminal.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from luminal.array_api.manipulation import *  # noqa: F403
from luminal.array_api.searching import *  # noqa: F403
from luminal.array_api.statistical import *  # noqa: F403
from luminal.base.complex_dtypes import complex64, complex128
from luminal.base.dtypes import (
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

__array_api_version__ = "2024.12"

bool = bool_
newaxis = None


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(f"lm.array_api has no {name!r}", name=name)


__all__ = [
    "Array", "__array_api_version__", "__array_namespace_info__", "bfloat16", "bool", "complex128",
    "complex64", "e", "fft", "float16", "float32", "float64", "inf", "int16", "int32", "int64",
    "int8", "linalg", "matmul", "matrix_transpose", "nan", "newaxis", "pi", "tensordot", "uint16",
    "uint32", "uint64", "uint8", "vecdot",
]  # fmt: skip
__all__ += creation.__all__ + data_types.__all__ + elementwise.__all__
__all__ += manipulation.__all__ + searching.__all__ + statistical.__all__

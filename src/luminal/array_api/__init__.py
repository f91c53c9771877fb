"""`lm.array_api`: the namespace of the Python array API standard (2024.12), for eager use.

Operations on its Arrays are recorded, and compiled and run when elements are asked for; a chain of
operations compiles once for its dtypes and shapes. With Tensors in the place of Arrays its
functions record into their graph, in the standard's sense where PyTorch's differs.
"""

from __future__ import annotations

from math import e, inf, nan, pi
from typing import NoReturn

from luminal.array_api import linalg
from luminal.array_api.array import Array
from luminal.array_api.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from luminal.array_api.data_types import (
    astype,
    can_cast,
    finfo,
    iinfo,
    isdtype,
    no_complex,
    result_type,
)
from luminal.array_api.elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    exp,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
    where,
)
from luminal.array_api.inspection import __array_namespace_info__
from luminal.array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from luminal.array_api.manipulation import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    meshgrid,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    tril,
    triu,
    unstack,
)
from luminal.array_api.searching import (
    argmax,
    argmin,
    argsort,
    isin,
    nonzero,
    searchsorted,
    sort,
    take,
    take_along_axis,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from luminal.array_api.statistical import (
    all,
    any,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
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

COMPLEX = ("complex64", "complex128", "fft")
"""What the standard has and complex dtypes would need."""


def __getattr__(name: str) -> NoReturn:
    text = f"lm.array_api has no {name!r}" + (f": {no_complex(name)}" if name in COMPLEX else "")
    raise AttributeError(text, name=name)


__all__ = [
    "Array", "__array_api_version__", "__array_namespace_info__", "abs", "acos", "acosh", "add",
    "all", "any", "arange", "argmax", "argmin", "argsort", "asarray", "asin", "asinh", "astype",
    "atan", "atan2", "atanh", "bfloat16", "bitwise_and", "bitwise_invert", "bitwise_left_shift",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bool", "broadcast_arrays",
    "broadcast_shapes", "broadcast_to", "can_cast", "ceil", "clip", "concat", "conj", "copysign",
    "cos", "cosh", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "divide", "e",
    "empty", "empty_like", "equal", "exp", "expand_dims", "expm1", "eye", "finfo", "flip",
    "float16", "float32", "float64", "floor", "floor_divide", "from_dlpack", "full", "full_like",
    "greater", "greater_equal", "hypot", "iinfo", "imag", "inf", "int16", "int32", "int64",
    "int8", "isdtype", "isfinite", "isin", "isinf", "isnan", "less", "less_equal", "linalg",
    "linspace", "log", "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not",
    "logical_or", "logical_xor", "matmul", "matrix_transpose", "max", "maximum", "mean",
    "meshgrid", "min", "minimum", "moveaxis", "multiply", "nan", "negative", "newaxis",
    "nextafter", "nonzero", "not_equal", "ones", "ones_like", "permute_dims", "pi", "positive",
    "pow", "prod", "real", "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll",
    "round", "searchsorted", "sign", "signbit", "sin", "sinh", "sort", "sqrt", "square",
    "squeeze", "stack", "std", "subtract", "sum", "take", "take_along_axis", "tan", "tanh",
    "tensordot", "tile", "tril", "triu", "trunc", "uint16", "uint32", "uint64", "uint8",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack", "var", "vecdot",
    "where", "zeros", "zeros_like",
]  # fmt: skip

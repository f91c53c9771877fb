"""Python and NumPy data on their way into a graph: dtypes found, conversions checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from luminal.dtypes import DType, bfloat16, default_dtype, dtype_of
from luminal.errors import DTypeError, ShapeError
from luminal.frontend.handle import Array


def array_of(data: Any, dtype: DType | None = None, name: str = "data") -> Array:
    """`data` as an array: NumPy arrays keep their dtype, Python data gives bool, int64 or float32.

    With `dtype`, arrays must convert without changing a value, Python data is rounded to it.
    Raises DTypeError for anything else, ShapeError for rows of unequal lengths.
    """
    if isinstance(data, np.ndarray):
        dtype_of(data)
        return data if dtype is None else preserved(name, data, dtype)
    try:
        array = np.asarray(data)
    except ValueError:
        raise ShapeError(f"{name}: rows of unequal lengths; make them equal, or pad them") from None
    if array.dtype.kind not in "biuf" and array.dtype != bfloat16.numpy:
        raise DTypeError(f"{name}: {data!r} is not made of numbers; pass numbers or an array")
    if array.dtype.kind == "f":
        return array.astype((dtype or default_dtype(0.0)).numpy)
    if array.size == 0 and isinstance(data, list):
        return array.astype((dtype or default_dtype(0.0)).numpy)
    if dtype is None:
        return array
    if dtype.is_int and array.size and not _fits(array, dtype):
        raise DTypeError(f"{name}: {data!r} does not fit {dtype.name}; use a wider dtype")
    return array.astype(dtype.numpy)


def _fits(array: Array, dtype: DType) -> bool:
    limits = np.iinfo(dtype.numpy)
    return bool(limits.min <= int(array.min()) and int(array.max()) <= limits.max)


def preserved(name: str, value: Any, dtype: DType) -> Array:
    """`value` as an array of `dtype`; raises DTypeError if that would change an element.

    Python numbers and lists are rounded to the dtype; NumPy arrays say what they are.
    """
    if not isinstance(value, np.ndarray):
        return array_of(value, dtype, name)
    if value.dtype == dtype.numpy:
        return value
    wrong = f"{name}: expected {dtype.name}, got {value.dtype}; pass x.astype(np.{dtype.name})"
    if value.dtype.kind not in "biuf" and value.dtype != bfloat16.numpy:
        raise DTypeError(wrong)
    with np.errstate(all="ignore"):
        converted = value.astype(dtype.numpy)
        kept = np.array_equal(converted.astype(value.dtype), value, equal_nan=_has_nan(value))
    if value.dtype.kind in "iub" and dtype.is_float:
        kept = kept and np.can_cast(value.dtype, dtype.numpy)  # 2**63 - 1 survives the round trip
    if not kept or (value.dtype.kind == "f" and not dtype.is_float):
        raise DTypeError(wrong)
    return converted


def _has_nan(array: Array) -> bool:
    return array.dtype.kind == "f" or dtype_of(array) is bfloat16

"""The one way of data into graphs, States and Parameters: which dtype it gets, what is refused.

*Arrays* have a dtype of their own: NumPy's, and whatever offers DLPack, `__array__` or a buffer
(tensors of PyTorch and JAX, with or without gradients, memoryviews), also in lists. They keep it,
and where another dtype is asked for they are converted if that changes no element; float64 also
where float32 rounds it: NumPy makes float64 unasked, and the dtype should say what is taken.

*Numbers* have none: Python's (`np.float64` is a float of Python's) and lists of numbers. They take
the dtype asked for, floats being rounded to it, or else bool, int64 or float32. A float is never
taken as an integer, whatever it comes in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from luminal.base.complex_dtypes import ComplexDType, complex_dtype_of
from luminal.base.dtypes import ALL, DType, default_dtype, dtype_of, float32
from luminal.base.errors import DTypeError, InputError, LuminalError, ShapeError
from luminal.memory.dlpack import imported

Array = np.ndarray[Any, Any]
NUMBERS = (bool, int, float, complex, np.generic)
NO_ARRAYS = (type, np.generic, str, bytes, bytearray)
_SHORT_FLOATS = tuple(dtype.numpy for dtype in ALL if dtype.is_storage)


def array_of(data: Any, dtype: DType | None = None, name: str = "data") -> Array:
    """`data` as an array of `dtype`, or of its own: a view where it can be one, else a copy.

    Raises DTypeError where a conversion would change an array's element or drop a float's fraction,
    and for what is not made of numbers; ShapeError for rows of unequal lengths.
    """
    array = _own_array(name, data)
    if array is None:
        return _of_numbers(name, data, dtype)
    if dtype is None:
        return _native(name, array)
    if array.dtype == dtype.numpy:
        return array
    return _converted(name, array, dtype, data)


def complex_array_of(data: Any, dtype: Any = None, name: str = "data") -> Array | None:
    """`data` as an array of complex numbers, where it has such or `dtype` is theirs; else None.

    It is a view where it can be one. Real numbers have imaginary parts of 0. Raises DTypeError for
    what is not made of numbers, and for integers that a float does not hold.
    """
    kind = complex_dtype_of(dtype) if dtype is not None else _complex_dtype_in(data)
    if kind is None:
        return None
    if hasattr(data, "resolve_conj"):  # PyTorch's conjugates have the memory of what they are of
        data = data.resolve_conj()
    # NumPy's own DLPack refuses bytes of the other order.
    foreign = hasattr(data, "__dlpack__") and not isinstance(data, np.ndarray)
    array = np.asarray(imported(name, data) if foreign else data)
    if array.dtype.kind not in "biufc":
        raise DTypeError(f"{name}: {_shown(data)} is not made of numbers; pass complex numbers")
    if array.dtype == kind.numpy:
        return array
    converted = kind.rounded(array)
    if array.dtype.kind in "iu" and not np.array_equal(converted.real, array):
        raise DTypeError(f"{name}: {_shown(data)} does not fit {kind.name}; cast it")
    return converted


def any_array_of(data: Any, dtype: Any = None, name: str = "data") -> Array:
    """What `array_of` gives, or where there are complex numbers, or their dtype is asked for, what
    `complex_array_of` does.
    """
    numbers = complex_array_of(data, dtype, name)
    return array_of(data, dtype, name) if numbers is None else numbers


def _complex_dtype_in(data: Any) -> ComplexDType | None:
    """The dtype of complex numbers, of an array of them, or of lists of either; None of others."""
    if not isinstance(data, list | tuple):
        return complex_dtype_of(data)
    kinds = [kind for item in data if (kind := _complex_dtype_in(item)) is not None]
    return max(kinds, key=lambda kind: kind.size, default=None)


def is_array(data: Any) -> bool:
    """Has `data` a dtype of its own, without being a scalar or a list?"""
    if isinstance(data, np.ndarray):
        return True
    if isinstance(data, NO_ARRAYS):
        return False
    if any(
        hasattr(data, protocol) for protocol in ("__dlpack__", "__array__", "__array_interface__")
    ):
        return True
    try:
        memoryview(data)
    except TypeError:
        return False
    return True


def is_list_of_numbers(data: Any) -> bool:
    """A list, not empty, of numbers or of such lists: what is an array in all but name."""
    if not isinstance(data, list):
        return False
    kinds = _leaf_types(data) - {list, tuple}
    return bool(kinds) and all(issubclass(kind, NUMBERS) for kind in kinds)


# --- arrays ---------------------------------------------------------------------------------------


def _own_array(name: str, data: Any) -> Array | None:
    """`data` as an array with the dtype that it has itself; None for numbers."""
    if isinstance(data, np.ndarray):
        if type(data) is not np.ndarray and isinstance(data, np.ma.MaskedArray):
            raise DTypeError(f"{name}: a masked array; pass x.filled(value)")
        return np.asarray(data)
    if isinstance(data, np.generic):
        return None if isinstance(data, float) else np.asarray(data)
    if isinstance(data, list | tuple):
        return _stacked(name, data) if any(map(_is_array_type, _leaf_types(data))) else None
    if not is_array(data):
        return None
    return imported(name, data) if hasattr(data, "__dlpack__") else np.asarray(data)


def _leaf_types(data: Iterable[Any]) -> set[type]:
    """The types of all items of nested lists, the lists' own among them."""
    # Types are gathered first: a long list of numbers has one or two, and is not walked in Python.
    types = set(map(type, data))
    if any(issubclass(item, list | tuple) for item in types):
        for item in data:
            if isinstance(item, list | tuple):
                types |= _leaf_types(item)
    return types


def _is_array_type(kind: type) -> bool:
    if issubclass(kind, np.generic):
        return False
    return hasattr(kind, "__dlpack__") or hasattr(kind, "__array__")


def _stacked(name: str, data: Iterable[Any]) -> Array:
    """Arrays in lists, along new first dims."""
    try:
        return np.stack([array_of(item, None, name) for item in data])
    except InputError as error:  # of a Tensor in it that has no value yet
        raise DTypeError(f"{error}; a list of Tensors becomes one Tensor by lm.stack") from None
    except LuminalError:
        raise
    except ValueError:
        raise _ragged(name) from None


def _native(name: str, array: Array) -> Array:
    """`array` in this machine's byte order; raises DTypeError for element types we lack."""
    _check_kind(name, array)
    wanted = dtype_of(array).numpy
    return array if array.dtype == wanted else array.astype(wanted)


def _check_kind(name: str, array: Array) -> None:
    if not _is_number(array):
        raise DTypeError(f"{name}: Luminal has no dtype {array.dtype.name}; cast it")


# Whether a conversion loses anything depends on the elements, not on the dtypes: ids come as int64
# and fit int32, data of tests comes as float64 and is meant as float32. Floats are never taken for
# integers, whole ones neither: that is a mistake more often than a wish.
def _converted(name: str, array: Array, dtype: DType, data: Any) -> Array:
    """`array`, which `data` holds, as `dtype`; raises DTypeError if that changes an element."""
    # A conversion is allowed where it can be taken back element by element: that is asked of the
    # values, not of the types, so that int64 indices pass as int32. float64 to float32 is the
    # exception, since NumPy makes float64 unasked.
    wrong = f"{name}: expected {dtype.name}, got {array.dtype.name}; pass {_cast(data, dtype)}"
    if not _is_number(array) or (_is_float(array) and not dtype.is_float):
        raise DTypeError(wrong)
    with np.errstate(all="ignore"):
        converted = dtype.rounded(array)
        if dtype is float32 and array.dtype.str[1:] == "f8":
            return converted
        kept = np.array_equal(converted.astype(array.dtype), array, equal_nan=_is_float(array))
    if array.dtype.kind in "iub" and dtype.is_float:
        kept = kept and np.can_cast(array.dtype, dtype.numpy)  # 2**63 - 1 survives the round trip
    if not kept:
        raise DTypeError(wrong)
    return converted


def _cast(data: Any, dtype: DType) -> str:
    """What to write for a cast, in the words of the library that `data` is of."""
    if hasattr(data, "detach"):
        return f"x.to(torch.{dtype.name})"
    named = f"np.{dtype.name}" if hasattr(np, dtype.name) else f"lm.{dtype.name}.numpy"
    return f"x.astype({named})"


def _is_number(array: Array) -> bool:
    return array.dtype.kind in "biuf" or _is_float(array)


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype in _SHORT_FLOATS


# --- numbers --------------------------------------------------------------------------------------


def _of_numbers(name: str, data: Any, dtype: DType | None) -> Array:
    # NumPy would make an array of one object of it, for which the later message says less.
    if isinstance(data, Mapping | set | frozenset):
        raise DTypeError(f"{name}: a {type(data).__name__} is not an array; pass a list of numbers")
    try:
        array = np.asarray(data)
    except ValueError:
        raise _ragged(name) from None
    if not _is_number(array):
        shown = _shown(data)
        if array.dtype.kind == "c":
            raise DTypeError(f"{name}: {shown} is complex; pass its real and imaginary part")
        # Integers beyond 64 bits are objects to NumPy.
        if all(isinstance(number, int) for number in array.flat):
            raise DTypeError(f"{name}: {shown} does not fit int64 or uint64; pass a float")
        raise DTypeError(f"{name}: {shown} is not made of numbers; pass numbers or an array")
    # NumPy calls an empty list float64, which nobody has said.
    if array.size == 0 and isinstance(data, list | tuple):
        return array.astype((dtype or default_dtype(0.0)).numpy)
    if _is_float(array):
        return _rounded(name, data, array, dtype or default_dtype(0.0))
    if dtype is None:
        return array
    if not dtype.is_float and not _is_in_range(array, dtype):
        raise DTypeError(f"{name}: {_shown(data)} does not fit {dtype.name}; use a wider dtype")
    return dtype.rounded(array)


def _rounded(name: str, data: Any, array: Array, dtype: DType) -> Array:
    if not dtype.is_float:
        raise DTypeError(
            f"{name}: expected {dtype.name}, got the float {_shown(data)}; write integers"
            if array.ndim == 0
            else f"{name}: expected {dtype.name}, got floats, {_shown(data)}; write integers"
        )
    return dtype.rounded(array)


def _is_in_range(array: Array, dtype: DType) -> bool:
    if dtype.kind == "bool":
        low, high = 0, 1
    else:
        limits = np.iinfo(dtype.numpy)
        low, high = limits.min, limits.max
    return array.size == 0 or (low <= int(array.min()) and int(array.max()) <= high)


def shown_elements(array: Array, prefix: str) -> str:
    """An array's elements for a repr: a few of many, in lines that follow the prefix."""
    return np.array2string(array, separator=", ", prefix=prefix, threshold=200, precision=4)


def _shown(data: Any) -> str:
    """`data` for an error text, shortened."""
    text = repr(data)
    return text if len(text) <= 80 else f"{text[:60]} ... {text[-15:]}"


def _ragged(name: str) -> ShapeError:
    return ShapeError(f"{name}: rows of unequal lengths; make them equal, or pad them")

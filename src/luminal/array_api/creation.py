"""Arrays from nothing, or from other data. Their elements are made at once, by NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.array_api.array import Array, memory_of, of_memory
from luminal.base import dtypes
from luminal.base.complex_dtypes import ComplexDType, any_dtype_of, complex64
from luminal.base.errors import DTypeError, InputError
from luminal.frontend.foreign import check_device
from luminal.memory.data import any_array_of, is_array
from luminal.memory.dlpack import imported


def _is_in_one_memory(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> bool:
    """Are both of one dtype in one memory, or have no elements that would lie anywhere?"""
    is_empty = first.size == 0 and first.dtype == second.dtype
    return is_empty or np.may_share_memory(first, second)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Array:
    """An Array of numbers, nested lists of them, or an array of any library.

    What has an array of its own is shared, unless a dtype or `copy=True` asks for another one; then
    operations on it run at once, since others may write to it. Raises InputError where `copy=False`
    is not possible, DTypeError for a dtype that would change an element: use astype.
    """
    check_device("asarray", device)
    wanted = None if dtype is None else any_dtype_of(dtype)
    is_ours = isinstance(obj, Array)
    elements = memory_of(obj) if is_ours else obj
    array = any_array_of(elements, wanted, "asarray")
    # NumPy does not say whether it copied; that both lie in one memory is the only witness.
    is_new = not (is_array(elements) and _is_in_one_memory(array, any_array_of(elements)))
    if copy is False and is_new:
        raise InputError("asarray: copy=False, but a copy is needed; leave copy out")
    if copy:
        array = array.copy()
    # Both names then hold one value, copied when either is written to, so that nothing has to be
    # copied now and nothing runs at once as it does for shared memory.
    elif is_ours and not is_new:
        return obj.__copy__()  # type: ignore[no-any-return]
    is_shared = not (copy or is_new) and array.flags.writeable
    return of_memory(array, is_shared=is_shared)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An Array in one memory with an array of another library, or of a copy.

    Operations on what is shared run at once, since others may write to it.
    """
    check_device("from_dlpack", device)
    if not hasattr(x, "__dlpack__"):
        raise DTypeError(f"from_dlpack: a {type(x).__name__} has no __dlpack__; use asarray")
    array = imported("from_dlpack", x)
    return of_memory(array.copy()) if copy else of_memory(array, is_shared=array.flags.writeable)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Array:
    """start, start + step, ... below stop; one argument counts from 0. Integers give int64."""
    check_device("arange", device)
    first, last = (0, start) if stop is None else (start, stop)
    default = dtypes.int64 if all(isinstance(x, int) for x in (first, last, step)) else None
    wanted = _float(default if dtype is None else dtype)
    return of_memory(np.arange(first, last, step).astype(wanted))


def full(
    shape: int | Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None
) -> Array:
    """All `fill_value`, a number; its own dtype by default."""
    check_device("full", device)
    wanted = None if dtype is None else any_dtype_of(dtype)
    value = any_array_of(fill_value, wanted, "full")
    return of_memory(np.full(shape, value, value.dtype))


def zeros(shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> Array:
    """All 0, float32 by default."""
    check_device("zeros", device)
    return of_memory(np.zeros(shape, _float(dtype)))


def ones(shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> Array:
    """All 1, float32 by default."""
    check_device("ones", device)
    return of_memory(np.ones(shape, _float(dtype)))


# What memory held before would make runs differ. The standard lets `empty` hold anything, zeros
# too.
empty = zeros


def zeros_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """All 0, of x's shape, and of its dtype by default."""
    return zeros(x.shape, dtype=x.dtype if dtype is None else dtype, device=device)


def ones_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """All 1, of x's shape, and of its dtype by default."""
    return ones(x.shape, dtype=x.dtype if dtype is None else dtype, device=device)


def full_like(x: Array, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """All `fill_value`, of x's shape, and of its dtype by default."""
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=device)


empty_like = zeros_like


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Array:
    """1 on diagonal `k`, 0 elsewhere, float32 by default."""
    check_device("eye", device)
    return of_memory(np.eye(n_rows, n_cols, k, _float(dtype)))


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Array:
    """`num` numbers at even distances from start to stop, which may be complex: then complex64 by
    default, else float32. Raises DTypeError for complex numbers in a real dtype.
    """
    check_device("linspace", device)
    is_complex = np.iscomplexobj([start, stop])
    default = complex64 if is_complex else dtypes.float32
    wanted = any_dtype_of(default if dtype is None else dtype)
    if is_complex and not isinstance(wanted, ComplexDType):
        raise DTypeError(f"linspace: {start}, {stop} are complex, {wanted.name} is not; give none")
    return of_memory(np.linspace(start, stop, num, endpoint).astype(wanted.numpy))


def _float(dtype: Any) -> Any:
    """NumPy's form of a dtype; float32 for None."""
    return any_dtype_of(dtypes.float32 if dtype is None else dtype).numpy


__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like",
    "linspace", "ones", "ones_like", "zeros", "zeros_like",
]  # fmt: skip

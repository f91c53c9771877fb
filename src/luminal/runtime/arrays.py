"""Arrays that callers give: borrowed as they are, converted where no value changes, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, InputError, ShapeError
from luminal.memory.arrays import aligned_empty
from luminal.memory.data import array_of, is_array
from luminal.memory.dlpack import imported
from luminal.memory.parameter import Parameter

Array: TypeAlias = np.ndarray[Any, Any]
Given: TypeAlias = Mapping[Any, Any]
"""Arrays by name or Tensor, as a caller passes them."""


def accept(name: str, value: Any, dtype: DType) -> Array:
    """`value` as a row-major array of `dtype`: borrowed if it is one already, else an aligned copy.

    Raises DTypeError where the conversion of an array would change a value; Python data is rounded.
    """
    # The usual call passes with two looks. NumPy has one dtype object of each kind in the machine's
    # byte order, so identity is enough; another order takes the long way.
    if value.__class__ is ndarray and value.dtype is dtype.numpy:
        flags = value.flags
        if flags.carray or (flags.c_contiguous and flags.aligned):
            return value
    array = array_of(value, dtype, name)
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    copy = aligned_empty(array.shape, dtype)
    copy[...] = array
    return copy


def can_hold_output(x: Any) -> bool:
    """Is `x` an array whose memory a run may write, not one that hands out copies?"""
    return isinstance(x, np.ndarray) or (is_array(x) and hasattr(x, "__dlpack__"))


def accept_output(name: str, candidate: Any, shape: tuple[int, ...], dtype: DType) -> Array:
    """The array that a run may write an output into; raises the error that says what is wrong."""
    # A run writes by address, so nothing may be converted here: an array that is not exactly right
    # is refused with the call that makes one that is.
    if not can_hold_output(candidate):
        raise InputError(f"out: {name} takes a NumPy array, got {type(candidate).__name__}")
    array: Array = (
        candidate if isinstance(candidate, np.ndarray) else imported(f"out: {name}", candidate)
    )
    if array.dtype != dtype.numpy:
        raise DTypeError(f"out: {name}: expected {dtype.name}, got {array.dtype}")
    if array.shape != shape:
        raise ShapeError(f"out: {name}: expected shape {shape}, got {array.shape}")
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable):
        raise InputError(
            f"out: {name}: the array is read-only, strided or unaligned; "
            f"pass np.empty({shape}, np.{dtype.name})"
        )
    return array


def merged(what: str, mapping: Any, named: Given) -> Given:
    """A mapping that a caller gives, and keywords; raises InputError for another type."""
    if mapping is not None and not isinstance(mapping, Mapping):
        kind = type(mapping).__name__
        raise InputError(f'{what}: takes a dict of arrays, as {{"x": array}}; got a {kind}')
    return {**(mapping or {}), **named}


def fitting(name: str, parameter: Parameter, value: Any) -> Array:
    """An array that `parameter.set` takes. Raises ShapeError or DTypeError."""
    array = array_of(value, parameter.dtype, name)
    if array.shape != parameter.shape:
        raise ShapeError(f"{name}: expected shape {parameter.shape}, got {array.shape}")
    return array

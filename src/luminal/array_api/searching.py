"""Looking for elements, putting them in order and between bounds, choosing them, sets of them.

How many results `nonzero` and `unique_*` have is decided by the elements: these are computed first,
and looked at with NumPy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from luminal.array_api.array import (
    Array,
    common_dtype,
    memory_of,
    of_arrays,
    of_memory,
    promoting,
)
from luminal.array_api.elementwise import maximum, minimum
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.movement import indexing
from luminal.frontend.pointwise import binary
from luminal.frontend.reduce import reductions, searching, sorting
from luminal.frontend.tensor import Tensor


@of_arrays
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the greatest first occurs (int64)."""
    return reductions.argmax(x, axis, keepdims)


@of_arrays
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the least first occurs (int64)."""
    return reductions.argmin(x, axis, keepdims)


@of_arrays
def searchsorted(
    x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None
) -> Tensor:
    """Where each of x2 would have to stand in the ascending vector x1 (int64)."""
    return searching.searchsorted(x1, x2, side=side, sorter=sorter)


@of_arrays
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The values along `axis` in order, NaN the greatest."""
    # Sorting is stable in any case, so that `stable` changes nothing.
    return sorting.sort(x, axis, descending).values


@of_arrays
def argsort(
    x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """The positions that sort x along `axis` (int64), equals in their order."""
    return sorting.sort(x, axis, descending).indices


@of_arrays
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices at `indices` along `axis` (None: of a vector); negative: from the end."""
    if axis is None and x.ndim != 1:
        raise ShapeError(f"take: x has {x.ndim} dims; give axis")
    return indexing.take(x, indices, 0 if axis is None else axis)


@of_arrays
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements at `indices` along `axis`, both broadcast elsewhere."""
    return indexing.take_along_axis(x, indices, axis)


@of_arrays
def isin(x1: Tensor, x2: Tensor, /, *, invert: bool = False) -> Tensor:
    """True for each element of x1 that equals one of x2, or with `invert` none of them."""
    return searching.isin(x1, x2, invert=invert)


where = promoting(binary.where, kept=1)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """x within min .. max, numbers or arrays that broadcast, in x's dtype; None is no bound.

    Raises DTypeError for bounds whose dtype is not within x's.
    """
    # The standard keeps x's dtype, so a wider bound could not be held exactly.
    bounds = [bound for bound in (min, max) if bound is not None]
    if isinstance(x, Array) and common_dtype((x, *bounds)) is not x.dtype:
        raise DTypeError(f"clip: x is {x.dtype.name}, and a bound is of a wider dtype; cast it")
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


# --- as many as there are -------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """The different values, where each first is, which one each element is, how many of each."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The different values, and how many of each there are."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The different values, and which one each element is."""

    values: Array
    inverse_indices: Array


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """The positions of the elements that are not 0: one int64 vector a dim."""
    array = memory_of(x)
    if array.ndim == 0:
        raise ShapeError("nonzero: a 0-d array has no positions; reshape it to (1,)")
    return tuple(map(of_memory, np.nonzero(array)))


def unique_all(x: Array, /) -> UniqueAll:
    """The different values, ascending, and all that is known of them; each NaN is one."""
    return UniqueAll(*map(of_memory, np.unique_all(memory_of(x))))


def unique_counts(x: Array, /) -> UniqueCounts:
    """The different values, ascending, and how many of each there are; each NaN is one."""
    return UniqueCounts(*map(of_memory, np.unique_counts(memory_of(x))))


def unique_inverse(x: Array, /) -> UniqueInverse:
    """The different values, ascending, and which one each element is; each NaN is one."""
    return UniqueInverse(*map(of_memory, np.unique_inverse(memory_of(x))))


def unique_values(x: Array, /) -> Array:
    """The different values, ascending; each NaN is one."""
    return of_memory(np.unique_values(memory_of(x)))


__all__ = [
    "argmax", "argmin", "argsort", "clip", "isin", "nonzero", "searchsorted", "sort", "take",
    "take_along_axis", "unique_all", "unique_counts", "unique_inverse", "unique_values", "where",
]  # fmt: skip

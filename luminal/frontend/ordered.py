"""Operations with an order along a dim: running sums, sorting, the k greatest."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from luminal import dtypes
from luminal.errors import ShapeError
from luminal.frontend.binary import sub
from luminal.frontend.handle import axis_of, describe, numpy_names
from luminal.frontend.movement import flip, narrow

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


class Sorted(NamedTuple):
    """What `sort` and `topk` give: values, and the positions they come from (int64)."""

    values: Tensor
    indices: Tensor


def _scanned(x: Tensor, kind: str, dim: int) -> Tensor:
    axis = axis_of(f"cum{kind}", dim, x.ndim)
    work = x.cast(dtypes.accumulator(x.dtype))
    result = x.graph.wrap(x.graph.builder.scan(work.value, kind, axis))
    return result.cast(x.dtype) if x.dtype.is_storage else result


@numpy_names
def cumsum(x: Tensor, dim: int) -> Tensor:
    """The running sum along `dim`; bools and narrow integers give int64 (uint64)."""
    return _scanned(x, "add", dim)


@numpy_names
def cumprod(x: Tensor, dim: int) -> Tensor:
    """The running product along `dim`; bools and narrow integers give int64 (uint64)."""
    return _scanned(x, "mul", dim)


@numpy_names
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Sorted:
    """(values, indices) along `dim`. Stable: equals keep their order. NaN is the greatest."""
    axis = axis_of("sort", dim, x.ndim)
    work = x.cast(dtypes.uint8 if x.dtype is dtypes.bool_ else x.dtype.compute)
    if descending:  # backwards before and after: equals keep their order
        work = flip(work, axis)
    values, order = map(x.graph.wrap, x.graph.builder.sort(work.value, axis))
    if descending:
        values = flip(values, axis)
        order = sub(x.extents[axis] - 1, flip(order, axis))
    return Sorted(values.cast(x.dtype), order)


@numpy_names
def argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """The positions that sort `x` along `dim` (int64), equals in their order."""
    return sort(x, dim, descending).indices


@numpy_names
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True) -> Sorted:
    """The k greatest (or least) along `dim` in order, with their positions; ties: the first."""
    axis = axis_of("topk", dim, x.ndim)
    extent = x.extents[axis]
    if extent.is_const and not 0 <= k <= extent.value:
        raise ShapeError(f"topk: k={k}, but dim {axis} of {describe(x)} has {extent} elements")
    values, indices = sort(x, axis, descending=largest)
    return Sorted(narrow(values, axis, 0, k), narrow(indices, axis, 0, k))

"""Reductions and running sums.

Where the standard differs from PyTorch, which methods and `lm`'s functions follow: `max` and `min`
give values only, `var` and `std` divide by n, running sums may start with what they start from.
"""

from __future__ import annotations

from typing import Any

from luminal.array_api.array import of_arrays
from luminal.base.errors import ShapeError
from luminal.frontend.handle import axis_of, of_tensors
from luminal.frontend.movement.views import concat
from luminal.frontend.reduce import reductions, statistics
from luminal.frontend.reduce.reductions import Dims
from luminal.frontend.tensor import Tensor


@of_arrays
def sum(x: Tensor, /, *, axis: Dims = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis`; bools and narrow integers give int64 (uint64)."""
    return reductions.sum(x, axis, keepdims, dtype)


@of_arrays
def prod(x: Tensor, /, *, axis: Dims = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product over `axis`; bools and narrow integers give int64 (uint64)."""
    return reductions.prod(x, axis, keepdims, dtype)


@of_arrays
def mean(x: Tensor, /, *, axis: Dims = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over `axis`."""
    return statistics.mean(x, axis, keepdims)


@of_arrays
def var(
    x: Tensor, /, *, axis: Dims = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance over `axis`, divided by n - correction: by n, unlike the method."""
    return _var(x, axis, keepdim=keepdims, correction=correction)


@of_arrays
def std(
    x: Tensor, /, *, axis: Dims = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The square root of `var`: divided by n, unlike the method."""
    return _std(x, axis, keepdim=keepdims, correction=correction)


@of_arrays
def max(x: Tensor, /, *, axis: Dims = None, keepdims: bool = False) -> Tensor:
    """The greatest value over `axis`, without its index, unlike the method."""
    return reductions.amax(x, axis, keepdims)


@of_arrays
def min(x: Tensor, /, *, axis: Dims = None, keepdims: bool = False) -> Tensor:
    """The least value over `axis`, without its index, unlike the method."""
    return reductions.amin(x, axis, keepdims)


@of_arrays
def any(x: Tensor, /, *, axis: Dims = None, keepdims: bool = False) -> Tensor:
    """True where an element over `axis` is not 0."""
    return reductions.any(x, axis, keepdims)


@of_arrays
def all(x: Tensor, /, *, axis: Dims = None, keepdims: bool = False) -> Tensor:
    """True where no element over `axis` is 0."""
    return reductions.all(x, axis, keepdims)


@of_arrays
def count_nonzero(x: Tensor, /, *, axis: Dims = None, keepdims: bool = False) -> Tensor:
    """How many elements over `axis` are not 0 (int64)."""
    return reductions.count_nonzero(x, axis, keepdims)


# --- running sums, differences --------------------------------------------------------------------


@of_arrays
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The running sum along `axis` (None: of a vector), led by a 0 with `include_initial`."""
    along = _only_axis("cumulative_sum", x, axis)
    return _led(reductions.cumsum(x, along, dtype), along, 0 if include_initial else None)


@of_arrays
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The running product along `axis` (None: of a vector), led by a 1 with `include_initial`."""
    along = _only_axis("cumulative_prod", x, axis)
    return _led(reductions.cumprod(x, along, dtype), along, 1 if include_initial else None)


def _only_axis(what: str, x: Tensor, axis: int | None) -> int:
    if axis is None and x.ndim != 1:
        raise ShapeError(f"{what}: x has {x.ndim} dims; give axis")
    return axis_of(what, 0 if axis is None else axis, x.ndim)


def _led(x: Tensor, axis: int, first: int | None) -> Tensor:
    """x behind one more element along `axis`."""
    if first is None:
        return x
    lead = x.graph.full((*x.extents[:axis], 1, *x.extents[axis + 1 :]), first, x.dtype)
    return concat((lead, x), axis)


@of_arrays
def diff(
    x: Tensor,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """x[1:] - x[:-1] along `axis`, `n` times; `prepend` and `append` are joined to x first."""
    return statistics.diff(x, n, axis, prepend, append)


_var, _std = of_tensors(statistics.var), of_tensors(statistics.std)  # of complex numbers too

__all__ = [
    "all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean",
    "min", "prod", "std", "sum", "var",
]  # fmt: skip

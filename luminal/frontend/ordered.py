"""Running sums, products and extremes along a dim, in O(n) memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from luminal import dtypes
from luminal.frontend.binary import where
from luminal.frontend.exponential import logaddexp
from luminal.frontend.handle import axis_of, in_float, numpy_names, takes_0d
from luminal.frontend.movement import view_of
from luminal.frontend.reduce import Extreme, reversed_order
from luminal.shape import view as views
from luminal.shape.expression import const, minimum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def _scan(x: Tensor, kind: str, axis: int) -> Tensor:
    return x.graph.wrap(x.graph.builder.scan(x.value, kind, axis))


def _accumulated(what: str, kind: str, x: Tensor, dim: int, dtype: Any) -> Tensor:
    axis = axis_of(what, dim, x.ndim)
    wanted = x.dtype if dtype is None else dtypes.dtype_of(dtype)
    result = _scan(x.cast(wanted).cast(dtypes.accumulator(wanted)), kind, axis)
    return result.cast(wanted) if wanted.is_storage or dtype is not None else result


@numpy_names
@takes_0d
def cumsum(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The running sum along `dim`: Scan(add); bools and narrow integers give int64 (uint64)."""
    return _accumulated("cumsum", "add", x, dim, dtype)


@numpy_names
@takes_0d
def cumprod(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The running product along `dim`: Scan(mul); bools and narrow integers give int64 (uint64)."""
    return _accumulated("cumprod", "mul", x, dim, dtype)


@numpy_names
@takes_0d
def cummax(x: Tensor, dim: int) -> Extreme:
    """(values, indices) of the greatest so far along `dim`: Scan(max); NaN stays from the first on.

    Of equals the last one's position (int64), as PyTorch.
    """
    axis = axis_of("cummax", dim, x.ndim)
    work = x.cast(dtypes.uint8 if x.dtype is dtypes.bool_ else x.dtype.compute)
    values = _scan(work, "max", axis)
    newest = (work == values) | (work != work)
    places = where(newest, x.graph.iota(x.extents, axis), 0)
    return Extreme(values.cast(x.dtype), _scan(places, "max", axis))


@numpy_names
@takes_0d
def cummin(x: Tensor, dim: int) -> Extreme:
    """(values, indices) of the least so far along `dim`, as `cummax` of -x (~x of integers)."""
    work = x.cast(dtypes.uint8 if x.dtype is dtypes.bool_ else x.dtype.compute)
    values, indices = cummax(reversed_order(work), dim)
    return Extreme(reversed_order(values).cast(x.dtype), indices)


@numpy_names
@takes_0d
@in_float
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(x))) along `dim`, without overflow or underflow.

    In log2(n) rounds of `logaddexp` with the values 1, 2, 4 ... positions before (Hillis and
    Steele, CACM 29(12), 1986), so that errors grow with log2(n) only.
    """
    axis = axis_of("logcumsumexp", dim, x.ndim)
    longest = x.extents[axis].interval.hi
    step = 1
    while longest is None or step < longest:
        x = logaddexp(x, _before(x, axis, step))
        step *= 2
    return x


def _before(x: Tensor, axis: int, distance: int) -> Tensor:
    """The values `distance` positions earlier along `axis`, -inf where there are none."""
    moved = minimum(const(distance), x.extents[axis])
    none = (const(0), const(0))
    kept = x.narrow(axis, 0, x.extents[axis] - moved)
    amounts = tuple((moved, const(0)) if k == axis else none for k in range(x.ndim))
    shifted = view_of(kept, views.pad(kept.extents, amounts))
    here = x.graph.iota(x.extents, axis) >= moved
    return where(here, shifted.reshape(x.extents), -math.inf)

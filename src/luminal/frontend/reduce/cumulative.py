"""Running sums, products, extremes and log-sums along a dim, in O(n) memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import dtypes
from luminal.frontend.handle import axis_of, in_float, numpy_names, takes_0d
from luminal.frontend.movement.indexing import gather
from luminal.frontend.movement.views import pad
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.pointwise.unary import bitcast, stop_gradient
from luminal.frontend.reduce.reduce import Extreme, reversed_order
from luminal.frontend.reduce.sorting import flipped_bits, rising_bits
from luminal.shape.expression import Expression, ceil_div, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

_POSITION = 2**31 - 1
BLOCK = 16  # positions of which each adds up all before it: a vector of sums


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

    Of equals the last one's position (int64) and value, which is another one where zeros of both
    signs are equals; as PyTorch.
    """
    axis = axis_of("cummax", dim, x.ndim)
    is_narrow = x.dtype.is_float and x.dtype.bits <= 32
    if is_narrow and x.extents[axis].interval.at_most(_POSITION):
        ranks = stop_gradient(_ranks_so_far(x, axis))
        indices = (ranks >> 1) & _POSITION
        return Extreme(_value_of_rank(x, ranks, indices, axis), indices)
    work = x.cast(dtypes.uint8 if x.dtype is dtypes.bool_ else x.dtype.compute)
    values = _scan(work, "max", axis)
    newest = (work == values) | (work != work)
    places = where(newest, x.graph.iota(x.extents, axis), 0)
    indices = _scan(places, "max", axis)
    return Extreme(gather(x, axis, indices) if x.dtype.is_float else values.cast(x.dtype), indices)


def _ranks_so_far(x: Tensor, axis: int) -> Tensor:
    """The greatest so far of integers that hold a float's order, its position and whether it is -0:
    a value and where it stands come from one scan.
    """
    work = x.cast(dtypes.float32)
    is_minus_zero = (bitcast(work, dtypes.int32) == -(2**31)).cast(dtypes.int64)
    places = x.graph.iota(x.extents, axis) << 1 | is_minus_zero
    return _scan(rising_bits(work).cast(dtypes.int64) << 32 | places, "max", axis)


def _to_greatest(g: Tensor, y: Tensor, x: Tensor, ranks: Tensor, indices: Tensor, axis: int) -> Any:
    return x.graph.zeros(x.extents, dtype=g.dtype).scatter_add(axis, indices, g), None, None


@differentiated(_to_greatest)
def _value_of_rank(x: Tensor, ranks: Tensor, indices: Tensor, axis: int) -> Tensor:
    """`gather(x, axis, indices)`, read from the ranks."""
    rising = (ranks >> 32).cast(dtypes.int32)
    sign_of_zero = (ranks << 31).cast(dtypes.int32)
    bits = where(rising == 0, sign_of_zero, flipped_bits(rising))
    return bitcast(bits, dtypes.float32).cast(x.dtype)


@numpy_names
@takes_0d
def cummin(x: Tensor, dim: int) -> Extreme:
    """(values, indices) of the least so far along `dim`, as `cummax` of -x (~x of integers)."""
    work = x.cast(dtypes.uint8 if x.dtype is dtypes.bool_ else x.dtype.compute)
    values, indices = cummax(reversed_order(work), dim)
    return Extreme(reversed_order(values).cast(x.dtype), indices)


# Before it was log2(n) rounds of `logaddexp` over all positions, 40 ms for a million values where
# this takes 4. The greatest so far is a constant to differentiation, as it cancels out; so
# gradients are finite where PyTorch's are NaN (-inf where a row begins).
@numpy_names
@takes_0d
@in_float
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(x))) along `dim`, without overflow or underflow.

    Each sum counts in powers of e of the greatest value so far, as that of a softmax does.
    """
    axis = axis_of("logcumsumexp", dim, x.ndim)
    end = _largest(x)  # infinities have no differences
    unit = stop_gradient(_scan(x.clip(-end, end), "max", axis))  # as it cancels out
    total = _sums_so_far(x, None, unit, axis)
    is_none = total == 0  # of -inf only
    return unit + where(is_none, -math.inf, where(is_none, 1, total).log())


def _largest(x: Tensor) -> float:
    return float(np.finfo(x.dtype.numpy).max)


def _sums_so_far(x: Tensor, weight: Tensor | None, unit: Tensor, axis: int) -> Tensor:
    """Sums of `weight * exp(x - unit)` along an axis over all positions up to each, of which the
    unit is: it never falls, and no x exceeds it.

    A block of positions adds up its own. All before it are one term more, of which a sum so far
    over the ends of the blocks tells: a Scan of pairs (unit, sum) in blocks.
    """
    extent = x.extents[axis]
    if extent.interval.at_most(BLOCK):
        return _sums_in_block(x, weight, unit, axis)
    units = _in_blocks(unit, axis, _largest(x))
    weights = None if weight is None else _in_blocks(weight, axis, 0)
    inside = _sums_in_block(_in_blocks(x, axis, -math.inf), weights, units, axis + 1)
    sums, ends = (part.select(axis + 1, -1) for part in (inside, units))
    before = _sums_so_far(ends, sums, ends, axis)  # the last block's may be none, and is not read
    weight, end = _one_before(before, axis, 0), _one_before(ends, axis, -_largest(x))
    rescaled = weight * (end - units).exp()
    return (inside + rescaled).flatten(axis, axis + 1).narrow(axis, 0, extent)


def _sums_in_block(x: Tensor, weight: Tensor | None, unit: Tensor, axis: int) -> Tensor:
    """As `_sums_so_far`, each sum by itself."""
    here, reads = axis, axis + 1
    apart = x.unsqueeze(here) - unit.unsqueeze(reads)
    is_before = x.graph.iota(apart.extents, reads) <= x.graph.iota(apart.extents, here)
    powers = where(is_before, apart, -math.inf).exp()
    if weight is not None:
        powers = powers * where(is_before, weight.unsqueeze(here), 0)
    return powers.sum(reads)


def _in_blocks(x: Tensor, axis: int, value: float) -> Tensor:
    """An axis as two, blocks and their positions, the last block filled up with `value`."""
    blocks = ceil_div(x.extents[axis], BLOCK)
    filled = _padded(x, axis, const(0), blocks * BLOCK - x.extents[axis], value)
    return filled.reshape(*x.extents[:axis], blocks, BLOCK, *x.extents[axis + 1 :])


def _one_before(x: Tensor, axis: int, value: float) -> Tensor:
    """What the block before has, `value` for the first, for all positions of a block."""
    kept = x.narrow(axis, 0, x.extents[axis] - 1)
    return _padded(kept, axis, const(1), const(0), value).unsqueeze(axis + 1)


def _padded(x: Tensor, axis: int, before: Expression, after: Expression, value: float) -> Tensor:
    pairs = [(const(0), const(0))] * x.ndim
    pairs[axis] = before, after
    return pad(x, pairs, value)

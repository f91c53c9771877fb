"""Reductions, running ones too: sums, products, extremes, counts.

A reduction is one Sum or Max node per dimension, or one Scan; what runs along a dim is a Scan and
takes O(n) memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.handle import (
    axes_of,
    axis_of,
    describe,
    in_float,
    is_tensor,
    numpy_names,
    takes_0d,
)
from luminal.frontend.movement.indexing import gather
from luminal.frontend.movement.views import concat, pad
from luminal.frontend.pointwise.binary import maximum, minimum, sub, where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.pointwise.unary import bitcast, flipped_bits, rising_bits, stop_gradient
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.shape.expression import Expression, ceil_div, const, product_of

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


LAST_I32 = (1 << 31) - 1

Dims: TypeAlias = int | Sequence[int] | None
Reduction: TypeAlias = Callable[[Any, Any, bool], Any]


class Extreme(NamedTuple):
    """What `max(dim)` and `min(dim)` give: the values, and where each first occurs (int64)."""

    values: Tensor
    indices: Tensor


def _reduced(x: Tensor, op: str, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """`op` ("sum" or "max") over `axes`, the last one first."""
    builder, value = x.graph.builder, x.value
    for axis in reversed(axes):
        value = builder.sum(value, axis) if op == "sum" else builder.max(value, axis)
    result = x.graph.wrap(value)
    return result.unsqueeze(axes) if keepdim and axes else result


def count(x: Tensor, axes: tuple[int, ...]) -> Expression:
    """How many elements one result of a reduction over `axes` comes from."""
    return product_of(x.extents[axis] for axis in axes)


def number(x: Tensor, n: Expression) -> Tensor:
    """`n` in x's dtype, as a 0-d Tensor."""
    return x.graph.constant(n.value if n.is_const else n, x.dtype)


# --- sums -----------------------------------------------------------------------------------------


@numpy_names
def sum(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The sum over `dim` (an int, several, or None: all); 0 of nothing.

    Bools and narrow integers give int64 (uint64); 16-bit floats are added in float32.
    """
    axes = axes_of("sum", dim, x.ndim)
    wanted = x.dtype if dtype is None else dtypes.dtype_of(dtype)
    chosen = x if dtype is None else x.cast(wanted)
    # The cast of what goes in is fused into the sum: nothing is stored in the wider dtype.
    total = _reduced(chosen.cast(dtypes.accumulator(wanted)), "sum", axes, keepdim)
    return total.cast(wanted) if wanted.is_storage or dtype is not None else total


@numpy_names
def nansum(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The sum of what is not NaN over `dim`."""
    return sum(where(x == x, x, 0) if x.dtype.is_float else x, dim, keepdim, dtype)


@numpy_names
def count_nonzero(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """How many elements over `dim` are not 0 (int64); NaN is not 0."""
    return sum(x.cast(dtypes.bool_), dim, keepdim)


@numpy_names
def prod(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The product over `dim`: the end of a Scan. 1 of nothing; narrow integers give int64."""
    axes = axes_of("prod", dim, x.ndim)
    wanted = x.dtype if dtype is None else dtypes.dtype_of(dtype)
    result = x.cast(wanted).cast(dtypes.accumulator(wanted))
    for first, last in reversed(_runs(axes)):
        result = _product(result.flatten(first, last), first)
    if keepdim and axes:
        result = result.unsqueeze(axes)
    return result.cast(wanted) if wanted.is_storage or dtype is not None else result


def _runs(axes: tuple[int, ...]) -> list[tuple[int, int]]:
    """The first and the last of axes beside each other: one Scan takes them as one."""
    firsts = [a for a in axes if a - 1 not in axes]
    lasts = [a for a in axes if a + 1 not in axes]
    return list(zip(firsts, lasts, strict=True))


def _product(x: Tensor, axis: int) -> Tensor:
    """The last element of the running product, which a leading 1 lets be empty."""
    extent = x.extents[axis]
    if extent.interval.lo is None or extent.interval.lo < 1:
        one = x.graph.full((*x.extents[:axis], 1, *x.extents[axis + 1 :]), 1, x.dtype)
        x = concat((one, x), axis)
    # There is no primitive Product: a product is the last element of the running one.
    running = x.graph.wrap(x.graph.builder.scan(x.value, "mul", axis))
    return running.select(axis, -1)


# --- extremes -------------------------------------------------------------------------------------


def check_not_empty(what: str, x: Tensor, axes: tuple[int, ...]) -> None:
    """Raises ShapeError where there is no element that could be the result."""
    for axis in axes:
        if x.extents[axis] == const(0):
            raise ShapeError(f"{what}: dim {axis} of {describe(x)} is empty; give it an element")


def reversed_order(x: Tensor) -> Tensor:
    """An order-reversing copy of `x` without overflow: the complement of integers, -x of floats."""
    return -x if x.dtype.is_float else ~x


@numpy_names
def amax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The greatest value over `dim`; NaN if there is one. ShapeError of nothing."""
    axes = axes_of("max", dim, x.ndim)
    check_not_empty("max", x, axes)
    return greatest(x, axes, keepdim)


def greatest(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """The greatest over `axes`, as `amax` has it; of nothing the dtype's lowest value (-inf)."""
    # A Max of 16-bit floats is exact in f32; bools are ordered as bytes.
    work = dtypes.uint8 if x.dtype is dtypes.bool_ else x.dtype.compute
    return _greatest(x.cast(work), axes, keepdim).cast(x.dtype)


def _greatest_derivative(
    g: Tensor, y: Tensor, x: Tensor, axes: tuple[int, ...], keepdim: bool
) -> Tensor:
    """Equal elements share evenly, over all axes."""
    if not keepdim:
        g, y = g.unsqueeze(axes), y.unsqueeze(axes)
    hit = (x == y) | ((x != x) & (y != y))
    count = sum(hit.cast(x.dtype), axes, keepdim=True)
    return where(hit, g / count, 0)


@differentiated(_greatest_derivative)
def _greatest(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    return _reduced(x, "max", axes, keepdim)


@numpy_names
def amin(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The least value over `dim`: that of -x, or of ~x, greatest. NaN if there is one."""
    axes = axes_of("min", dim, x.ndim)
    check_not_empty("min", x, axes)
    flipped = reversed_order(x.cast(x.dtype.compute))
    return reversed_order(amax(flipped, axes, keepdim)).cast(x.dtype)


@numpy_names
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the greatest first occurs (int64), NaN being the greatest; None: in x flattened."""
    if dim is None or x.ndim == 0:
        flat = argmax(x.flatten(), 0)
        return flat.reshape((1,) * x.ndim) if keepdim else flat
    axis = axis_of("argmax", dim, x.ndim)
    check_not_empty("argmax", x, (axis,))
    if x.dtype is dtypes.bool_:
        x = x.cast(dtypes.uint8)
    x = x.cast(x.dtype.compute)
    hit = x == amax(x, axis, keepdim=True)
    if x.dtype.is_float:
        hit = hit | (x != x)
    last = x.extents[axis] - 1
    # Twice as many positions to a vector where 32 bits hold them all.
    positions = dtypes.int32 if last.interval.at_most(LAST_I32) else dtypes.int64
    # The greatest distance from the end among the hits is the first hit: a Max where an argmax is
    # wanted, so that one kind of reduction serves both.
    from_end = sub(last, x.graph.iota(x.extents, axis, positions))
    nearest_start = _reduced(where(hit, from_end, 0), "max", (axis,), keepdim)
    return sub(last, nearest_start.cast(dtypes.int64))


@numpy_names
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the least first occurs (int64), NaN counting as the least; None: in x flattened."""
    if x.dtype is dtypes.bool_:
        return argmax(~x, dim, keepdim)
    return argmax(reversed_order(x.cast(x.dtype.compute)), dim, keepdim)


class MinMax(NamedTuple):
    """The results of `aminmax`: the least, and the greatest."""

    min: Tensor
    max: Tensor


@numpy_names
def aminmax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> MinMax:
    """The least and the greatest value over `dim`, as a pair."""
    return MinMax(amin(x, dim, keepdim), amax(x, dim, keepdim))


def _one_derivative(
    g: Tensor, y: Tensor, x: Tensor, extreme: Reduction, place: Reduction, dim: int, keepdim: bool
) -> Tensor:
    """The gradient goes to the index that is given out, though others be equal."""
    if x.ndim == 0:
        return g
    axis = axis_of("max", dim, x.ndim)
    g = g if keepdim else g.unsqueeze(axis)
    return where(x.graph.iota(x.extents, axis) == place(x, axis, True), g, 0)


@differentiated(_one_derivative, marked=True)
def _one_of(x: Tensor, extreme: Reduction, place: Reduction, dim: int, keepdim: bool) -> Tensor:
    """The extreme along a dim, as the value of one element."""
    value: Tensor = extreme(x, dim, keepdim)
    return value


@numpy_names
def max(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The greatest of all without `dim`; with it `(values, indices)` along it, as PyTorch.

    With a Tensor, `maximum` of both.
    """
    if is_tensor(dim) or isinstance(dim, Parameter | State):
        return maximum(x, dim)
    if dim is None:
        return amax(x, None, keepdim)
    return Extreme(_one_of(x, amax, argmax, dim, keepdim), argmax(x, dim, keepdim))


@numpy_names
def min(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The least of all without `dim`; with it `(values, indices)` along it, as PyTorch.

    With a Tensor, `minimum` of both.
    """
    if is_tensor(dim) or isinstance(dim, Parameter | State):
        return minimum(x, dim)
    if dim is None:
        return amin(x, None, keepdim)
    return Extreme(_one_of(x, amin, argmin, dim, keepdim), argmin(x, dim, keepdim))


@numpy_names
def any(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where an element over `dim` is not 0; False of nothing."""
    axes = axes_of("any", dim, x.ndim)
    # `any` is the greatest of 0 and 1, which vectors of bytes compute 16 at a time and more.
    truth = x.cast(dtypes.bool_).cast(dtypes.uint8)
    return _reduced(truth, "max", axes, keepdim).cast(dtypes.bool_)


@numpy_names
def all(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """True where no element over `dim` is 0; True of nothing."""
    return ~any(~x.cast(dtypes.bool_), dim, keepdim)


# --- running sums, products and extremes ----------------------------------------------------------


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
        # Integers carry no gradient; `_value_of_rank` says how the values' flows.
        ranks = stop_gradient(_ranks_so_far(x, axis))
        indices = (ranks >> 1) & _POSITION
        return Extreme(_value_of_rank(x, ranks, indices, axis), indices)
    work = x.cast(dtypes.uint8 if x.dtype is dtypes.bool_ else x.dtype.compute)
    values = _scan(work, "max", axis)
    # Of equals the last position counts, so a running maximum of positions where the value is
    # attained.
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
    # A unit beyond the end is the greatest number: exp(x - unit) of what fills the block is 0.
    units = _in_blocks(unit, axis, _largest(x))
    weights = None if weight is None else _in_blocks(weight, axis, 0)
    inside = _sums_in_block(_in_blocks(x, axis, -math.inf), weights, units, axis + 1)
    sums, ends = (part.select(axis + 1, -1) for part in (inside, units))
    before = _sums_so_far(ends, sums, ends, axis)  # the last block's may be none, and is not read
    weight, end = _one_before(before, axis, 0), _one_before(ends, axis, -_largest(x))
    rescaled = weight * (end - units).exp()
    return (inside + rescaled).flatten(axis, axis + 1).narrow(axis, 0, extent)


def _sums_in_block(x: Tensor, weight: Tensor | None, unit: Tensor, axis: int) -> Tensor:
    """The sums so far, each added up by itself; see `_sums_so_far`."""
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

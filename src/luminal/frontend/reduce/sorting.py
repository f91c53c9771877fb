"""Order along a dim: sort, argsort, the k greatest, the k-th least, the most frequent value.

All are written with the primitive Sort: ascending and stable, NaN the greatest, -0 equal to +0; it
takes O(n) memory and O(n log n) time. A 0-d tensor counts as one element along one dim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import ShapeError
from luminal.frontend.handle import Extent, along, axis_of, describe, numpy_names
from luminal.frontend.movement.indexing import gather
from luminal.frontend.movement.views import (
    concat,
    flatten,
    mapped,
    narrow,
    pad,
    reshape,
    squeeze,
    unflatten,
    unsqueeze,
)
from luminal.frontend.pointwise.binary import minimum, where
from luminal.frontend.pointwise.unary import rising_bits
from luminal.frontend.reduce.reductions import amax, amin, argmin
from luminal.shape.expression import Expression, maximum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


LONG = 2048
"""Positions from which on finding the blocks of the greatest costs less than sorting all."""
LEAST_SIDE = 4
FEW = 16
"""Up to so many, the least are found by a pass over the row for each, sooner than by sorting it: 12
of 200 take a tenth of the time. Each pass is code of its own, which more would make long."""
SHORT = 16
"""Below it a Sort is as quick, and a smaller program."""


class Sorted(NamedTuple):
    """What `sort`, `topk` and `kthvalue` give: values, and where they come from (int64)."""

    values: Tensor
    indices: Tensor


@numpy_names
def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Sorted:
    """(values, indices) along `dim`, shaped as x: one Sort.

    Always stable, `stable` or not: equals keep their order. NaN is the greatest.
    """
    if x.ndim == 0:
        return _as_scalars(sort(reshape(x, 1), dim, descending))
    axis = axis_of("sort", dim, x.ndim)
    if not descending:
        values, order = _sorted(x.cast(_key_dtype(x)), axis)
        return Sorted(values.cast(x.dtype), order)
    values, order = _sorted(_falling_keys(x), axis)
    return Sorted(gather(x, axis, order) if x.dtype.is_float else ~values.cast(x.dtype), order)


def _sorted(keys: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The primitive: keys in ascending order, and where they come from."""
    values, order = map(keys.graph.wrap, keys.graph.builder.sort(keys.value, axis))
    return values, order


def _key_dtype(x: Tensor) -> DType:
    """What Sort takes for x's values."""
    return dtypes.uint8 if x.dtype is dtypes.bool_ else x.dtype.compute


def _falling_keys(x: Tensor) -> Tensor:
    """Integers whose ascending order is x's descending one; equals stay equal.

    The complement; of floats, of their bits, which order as the values do once those of negative
    ones are flipped below the sign (IEEE 754, 5.10).
    """
    if not x.dtype.is_float:
        return (~x).cast(_key_dtype(x))
    return ~rising_bits(x)


def _rising_keys(x: Tensor) -> Tensor:
    """Integers in the order of x; equals stay equal."""
    return rising_bits(x) if x.dtype.is_float else x.cast(_key_dtype(x))


def _as_scalars(vectors: Sorted) -> Sorted:
    return Sorted(reshape(vectors.values, ()), reshape(vectors.indices, ()))


@numpy_names
def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions that sort `x` along `dim` (int64), equals in their order: `sort(x).indices`."""
    return sort(x, dim, descending).indices


def msort(x: Tensor) -> Tensor:
    """The values sorted along the first dim: `sort(x, 0).values`."""
    return sort(x, 0).values


# The k greatest lie in the k blocks whose greatest are greatest. Of equal ones the first are taken
# at each step, so positions are those of a stable sort. With sides s and s * s the three sorts are
# short for s near the cube root of extent / k.
@numpy_names
def topk(x: Tensor, k: Extent, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """The k greatest (or least) along `dim`, with their positions; of equals, the first ones.

    In order, `sorted` or not; NaN is the greatest. A Gather at the first k positions of the order,
    found by k maxima where k is small, else by a Sort; in few blocks where the dim is long
    (`_least_in_blocks`).
    0 <= k <= extent is proved or required; ShapeError if it never holds.
    """
    if x.ndim == 0:
        return _as_scalars(topk(reshape(x, 1), k, dim, largest))
    axis = axis_of("topk", dim, x.ndim)
    count, extent = x.graph.extent(k), x.extents[axis]
    if count.is_const and extent.is_const and not 0 <= count.value <= extent.value:
        raise ShapeError(f"topk: k={k}, but dim {axis} of {describe(x)} has {extent} elements")
    sides = _sides(extent, count)
    if sides:
        key = _falling_keys if largest else _rising_keys
        indices = _least_in_blocks(
            key(x), lambda at: key(gather(x, axis, at)), axis, count.value, sides
        )
    else:
        keys = _falling_keys(x) if largest else x.cast(_key_dtype(x))
        indices = _least(keys, axis, count)
    return Sorted(gather(x, axis, indices), indices)


def _least(keys: Tensor, axis: int, count: Extent) -> Tensor:
    """Where the `count` least keys are, in ascending order."""
    few, extent = keys.graph.extent(count), keys.extents[axis]
    is_long = extent.is_const and extent.value >= SHORT
    if is_long and few.is_const and 1 <= few.value <= FEW:
        whole = _rising_keys(keys)
        if few.value == 1:
            return argmin(whole, axis, keepdim=True)
        if whole.dtype.bits <= 32:
            return _least_by_passes(whole, axis, few.value)
    return narrow(_sorted(keys, axis)[1], axis, 0, count)


def _least_by_passes(keys: Tensor, axis: int, count: int) -> Tensor:
    """The k least keys by a minimum for each: with its position behind it no key equals another, so
    what is left after a minimum is what exceeds it.
    """
    # The key in the high word, the position in the low one: one comparison decides both.
    ranks = (keys.cast(dtypes.int64) << 32) | keys.graph.iota(keys.extents, axis)
    minima, left = [], ranks
    for _ in range(count):
        least = amin(left, axis, keepdim=True)
        minima.append(least & 0xFFFFFFFF)
        left = where(ranks > least, ranks, np.iinfo(np.int64).max)
    return concat(minima, axis)


def _sides(extent: Expression, count: Expression) -> tuple[int, ...]:
    """Positions of a block, and of a block of what is left then; none where a Sort takes all.

    With sides s**2 and s three sorts remain, of extent / s**2, count * s and count * s keys: equal
    ones where s**3 is extent / count.
    """
    if not (extent.is_const and count.is_const) or extent.value < LONG or count.value < 1:
        return ()
    side = 1 << round(math.log2(extent.value / count.value) / 3)
    return (side * side, side) if side >= LEAST_SIDE else ()


def _least_in_blocks(
    keys: Tensor, at: Callable[[Tensor], Tensor], axis: int, count: int, sides: Sequence[int]
) -> Tensor:
    """The k least keys of few blocks: they lie in the k blocks whose least keys are least.

    `at` gives the keys at positions. Of blocks whose least keys are equal the first ones are taken;
    then the first of equal keys are among them: for each of these that no earlier block taken has
    there is a block, and it comes before all blocks without one. Taken blocks stay in their order.
    """
    if not sides:
        return _least(keys, axis, count)
    side, *rest = sides
    extent = keys.extents[axis].value
    limits = np.iinfo(keys.dtype.numpy)
    # The least key is the complement of the greatest complement.
    beyond = [(0, -extent % side if k == axis else 0) for k in range(keys.ndim)]
    filled = pad(~keys, beyond, int(limits.min))
    blocks = -(-extent // side)
    best = ~amax(unflatten(filled, axis, (blocks, side)), axis + 1)
    taken, _ = _sorted(_least(best, axis, count), axis)
    shape = [side if k == axis + 1 else 1 for k in range(keys.ndim + 1)]
    within = reshape(keys.graph.arange(side), *shape)
    positions = flatten(unsqueeze(taken, axis + 1) * side + within, axis, axis + 1)
    if extent % side:
        candidates = at(minimum(positions, extent - 1))
        candidates = where(positions < extent, candidates, int(limits.max))
    else:
        candidates = at(positions)
    inner = _least_in_blocks(candidates, partial(gather, candidates, axis), axis, count, rest)
    return gather(positions, axis, inner)


@numpy_names
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Sorted:
    """The most frequent value along `dim`, of several the least, and its last position.

    Runs of a sort; a running maximum tells where each began.
    """
    if x.ndim == 0:
        return _as_scalars(mode(reshape(x, 1), dim, True))
    axis = axis_of("mode", dim, x.ndim)
    values, order = sort(x, axis)
    at = x.graph.iota(x.extents, axis)
    entries = [along(k, n) for k, n in enumerate(x.extents)]
    entries[axis] = maximum(entries[axis] - 1, 0)
    # NaN differs from NaN, so each is a run of its own.
    begins = (mapped(values, x.extents, entries) != values) | (at == 0)
    starts = where(begins, at, 0)
    began = x.graph.wrap(x.graph.builder.scan(starts.value, "max", axis))
    best = (at - began).argmax(axis, keepdim=True)
    parts = (gather(part, axis, best) for part in (values, order))
    return Sorted(*(part if keepdim else squeeze(part, axis) for part in parts))


@numpy_names
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Sorted:
    """The k-th least along `dim` (from 1 on) and its position: element k-1 of its order.

    Raises ShapeError unless 1 <= k <= extent.
    """
    if x.ndim == 0:
        return _as_scalars(kthvalue(reshape(x, 1), k, dim, True))
    axis = axis_of("kthvalue", dim, x.ndim)
    extent = x.extents[axis]
    if k < 1 or (extent.is_const and k > extent.value):
        raise ShapeError(
            f"kthvalue: k={k}, but dim {axis} of {describe(x)} has the elements 1..{extent}"
        )
    is_few = k <= FEW and extent.is_const
    order = topk(x, k, axis, largest=False) if is_few else sort(x, axis)
    parts = [narrow(part, axis, k - 1, 1) for part in order]
    return Sorted(*(part if keepdim else squeeze(part, axis) for part in parts))

"""Reading and writing at indices; results whose size depends on data."""

from __future__ import annotations

from typing import Any

import numpy as np

import luminal as lm
from luminal.base import dtypes
from luminal.frontend.handle import along
from luminal.frontend.movement.indexing import gather_at, wrapped
from luminal.frontend.movement.scatter import written
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call, extents_of
from luminal.onnx.errors import OnnxError
from luminal.onnx.operators.shapes import moving, tensor_of
from luminal.onnx.table import operator
from luminal.shape.expression import Expression, const, product_of


@operator("Gather", any_dtype=True)
def gather(call: Call, x: Any, index: Tensor) -> Any:
    """Slices along an axis."""
    axis = call.axis(0, tensor_of(x).ndim)
    call.indices(index, tensor_of(x).extents[axis])
    return moving(x, lambda x: x.take(index, axis))


@operator("GatherElements", any_dtype=True)
def gather_elements(call: Call, x: Any, index: Tensor) -> Any:
    """An element for each index, along an axis."""
    axis = call.axis(0, tensor_of(x).ndim)
    call.indices(index, tensor_of(x).extents[axis])
    return moving(x, lambda x: x.gather(axis, index))


@operator("ScatterElements", "Scatter", any_dtype=True)
def scatter_elements(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """Elements replaced, or combined, at the indices along an axis."""
    axis = call.axis(0, x.ndim)
    call.indices(index, x.extents[axis])
    kind = call.attribute("reduction", "none")
    if kind == "none":
        return x.scatter(axis, index, updates)
    named = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[kind]
    return x.scatter_reduce(axis, index, updates, named)


@operator("GatherND", any_dtype=True)
def gather_nd(call: Call, x: Any, index: Tensor) -> Any:
    """Slices at positions along several dims."""
    batch = call.attribute("batch_dims", 0)
    width = index.extents[-1].value
    extents = tensor_of(x).extents
    shape = (*index.extents[:-1], *extents[batch + width :])
    outer = index.ndim - 1
    entries: list[Any] = [along(k, shape[k]) for k in range(batch)]
    for k in range(width):
        at = _position(call, index, k, extents[batch + k])
        spread = at.reshape(*at.extents, *(const(1),) * (len(shape) - outer))
        entries.append(spread.broadcast_to(shape))
    entries += [along(outer + k, n) for k, n in enumerate(extents[batch + width :])]
    return moving(x, lambda x: gather_at(x, shape, entries))


@operator("ScatterND", any_dtype=True)
def scatter_nd(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """Slices replaced, or combined, at positions along several dims."""
    width = index.extents[-1].value
    kind = call.attribute("reduction", "none")
    outer = index.ndim - 1
    entries: list[Any] = []
    for k in range(width):
        at = _position(call, index, k, x.extents[k])
        spread = at.reshape(*at.extents, *(const(1),) * (updates.ndim - outer))
        entries.append(spread.broadcast_to(updates.extents))
    entries += [along(outer + k, n) for k, n in enumerate(x.extents[width:])]
    if kind in ("none", "add"):
        return written(x, entries, updates, "set" if kind == "none" else "add")
    # Only sets and sums scatter by several dims; the others go by the flattened position.
    flat = _flat_places(x, entries, updates)
    named = {"mul": "prod", "max": "amax", "min": "amin"}[kind]
    flattened = x.reshape(-1).scatter_reduce(0, flat, updates.reshape(-1), named)
    return flattened.reshape(*x.extents)


def _position(call: Call, index: Tensor, k: int, extent: Expression) -> Tensor:
    """The k-th number of each position, counted from the front."""
    at = index.select(-1, k)
    call.indices(at, extent)
    return wrapped(at, extent)


def _flat_places(x: Tensor, entries: list[Any], updates: Tensor) -> Any:
    """The entries as positions in x, flattened."""
    flat: Any = 0
    for k, (entry, extent) in enumerate(zip(entries, x.extents, strict=True)):
        if not isinstance(entry, Tensor):
            entry = x.graph.iota(updates.extents, updates.ndim - x.ndim + k)
        flat = flat * extent + entry.cast(dtypes.int64)
    return flat.reshape(-1)


@operator("OneHot")
def one_hot(call: Call, index: Tensor, depth: Tensor, values: Tensor) -> Any:
    """values[1] at each index along a new dim, values[0] elsewhere."""
    count = extents_of(call.known(depth))[0]
    if isinstance(count, int) and count < 1:
        raise OnnxError(f"the depth is {count}; it must be at least 1")
    axis = call.axis(-1, index.ndim + 1)
    index = index.cast(dtypes.int64)
    # Indices out of range are no error here: the specification of OneHot has all values off for
    # them.
    index = lm.where(index < 0, index + count, index).unsqueeze(axis)
    shape = [*index.extents]
    shape[axis] = const(count) if isinstance(count, int) else count
    # A comparison with a counter, which fuses into whatever reads it; nothing is scattered.
    hot = call.graph.iota(shape, axis) == index
    return lm.where(hot, values.select(0, 1), values.select(0, 0))


@operator("NonZero")
def non_zero(call: Call, x: Tensor) -> Tensor:
    """The positions of elements that are not 0: (rank, count)."""
    # Only the count is read; the positions are computed by the next piece, where the data is.
    count = int(call.read(lm.count_nonzero(x)))
    return lm.nonzero_static(call.input(0), count).mT


@operator("Compress", any_dtype=True)
def compress(call: Call, x: Any, condition: Tensor) -> Any:
    """The slices along an axis, or the elements, that a condition names; it may be longer."""
    kept = np.flatnonzero(call.read(condition))
    axis = call.attribute("axis")
    whole = call.input(0)
    extents = tensor_of(whole).extents
    extent = product_of(extents) if axis is None else extents[call.place(axis, len(extents))]
    index = call.hosted(kept[kept < extent.value].astype(np.int64))
    if axis is None:
        return moving(whole, lambda x: x.reshape(-1).take(index, 0))
    return moving(whole, lambda x: x.take(index, axis))


@operator("Unique")
def unique(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Distinct elements or slices, where they first occur, which each is, how often each occurs."""
    array = call.read(x)
    axis = call.attribute("axis")
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    # NumPy sorts in any case; the order of first occurrence is found by where each value first
    # stood.
    if not call.attribute("sorted", 1):
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts, inverse = first[order], counts[order], place[inverse]
    results = (values, *(places.astype(np.int64) for places in (first, inverse, counts)))
    return tuple(call.hosted(places) for places in results)  # type: ignore[return-value]


@operator("ReverseSequence")
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Tensor:
    """The first elements of each row in reverse, as many as its length says."""
    batch, time = call.axis(1, x.ndim, "batch_axis"), call.axis(0, x.ndim, "time_axis")
    call.within(lengths, 0, x.extents[time] + 1, "length")
    at = call.graph.iota(x.extents, time)
    spread = [const(1)] * x.ndim
    spread[batch] = x.extents[batch]
    count = lengths.reshape(*spread)
    return x.gather(time, lm.where(at < count, count - 1 - at, at))


MANY = 1 << 62


@operator("TensorScatter")
def tensor_scatter(
    call: Call, cache: Tensor, update: Tensor, places: Tensor | None = None
) -> Tensor:
    """A cache with an update written at each row's position, around the end if `mode` says so."""
    axis = call.axis(-2, cache.ndim)
    is_circular = call.attribute("mode", "linear") == "circular"
    room = cache.extents[axis] - update.extents[axis] + 1
    call.graph.require(room >= 1, f"an update of {update.extents[axis]}, a cache of less")
    at = call.graph.iota(update.extents, axis)
    if places is not None:
        call.within(places, 0, MANY if is_circular else room, "position")
        at = at + places.reshape(-1, *(1,) * (cache.ndim - 1))
    if is_circular:
        at = at % cache.extents[axis]
    return cache.scatter(axis, at, update)


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(call: Call, x: Tensor, index: Tensor) -> Tensor:
    """The columns that the indices name."""
    call.within(index, 0, x.extents[-1])
    columns = x.take(index.reshape(-1), -1)
    return columns.reshape(1, -1) if x.ndim == 1 else columns

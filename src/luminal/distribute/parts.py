"""Arrays and their parts: what of an array a rank holds, and the array of all ranks' parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luminal.base.errors import ShapeError
from luminal.distribute.layout import Cuts, Layout, local_shape, to_global
from luminal.distribute.mesh import Mesh
from luminal.hlir.semantics import Array
from luminal.hlir.sharding import dims_at
from luminal.shape.expression import ZERO, const
from luminal.shape.view import index

Dims = Mapping[str, int]
NONE: Dims = {}


def held(extent: int, cuts: Cuts, at: Mapping[str, int], dims: Dims) -> Any:
    """The positions of a dimension that a rank at these coordinates holds: a slice where they are
    neighbours, which may go past the end, else an array. `dims`: those of a rank, where a block of
    a cut is made of some.
    """
    if not cuts:
        return slice(None)
    part = shape_of_part((extent,), (cuts,))[0]
    part_index = ZERO if part == 1 else index(0, const(part))
    env: dict[str, Any] = {**dims, **dims_at(at)}
    env["i0"] = np.arange(part)
    positions = np.broadcast_to(np.asarray(to_global(part_index, cuts).evaluate(env)), (part,))
    if part and (np.diff(positions) == 1).all():
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions[positions < extent]


def _places(
    shape: Sequence[int], layout: Layout, at: Mapping[str, int], dims: Dims
) -> tuple[Any, ...]:
    held_by_dimension = [held(n, cuts, at, dims) for n, cuts in zip(shape, layout, strict=True)]
    if sum(isinstance(places, np.ndarray) for places in held_by_dimension) == 0:
        return tuple(held_by_dimension)
    return np.ix_(
        *(
            np.arange(n)[places] if isinstance(places, slice) else places
            for n, places in zip(shape, held_by_dimension, strict=True)
        )
    )


def part(array: Array, layout: Layout, at: Mapping[str, int], dims: Dims = NONE) -> Array:
    """The part of an array that a rank at these coordinates holds, with its pads, which are 0."""
    shape = shape_of_part(array.shape, layout)
    values = padded(np.asarray(array[_places(array.shape, layout, at, dims)]), shape)
    return np.ascontiguousarray(values).reshape(shape)


def padded(values: Array, shape: Sequence[int]) -> Array:
    """The array with as many zeros behind it, in each dimension, as make it of this shape."""
    if values.shape == tuple(shape):
        return values
    return np.pad(values, [(0, n - m) for m, n in zip(values.shape, shape, strict=True)])


def unpadded(
    values: Array,
    shape: Sequence[int],
    layout: Layout,
    at: Mapping[str, int],
    dims: Dims = NONE,
) -> Array:
    """A rank's part of an array of this shape without its pads."""
    for k, (extent, cuts) in enumerate(zip(shape, layout, strict=True)):
        if cuts:
            values = values[(slice(None),) * k + (slice(count(extent, cuts, at, dims)),)]
    return values


def count(extent: int, cuts: Cuts, at: Mapping[str, int], dims: Dims = NONE) -> int:
    """How many positions of a dimension a rank holds; in its part they come before the pads."""
    return len(np.arange(extent)[held(extent, cuts, at, dims)])


def put(
    array: Array, values: Array, layout: Layout, at: Mapping[str, int], dims: Dims = NONE
) -> None:
    """Writes a rank's part, with its pads or without, into the array of the whole."""
    values = unpadded(values, array.shape, layout, at, dims)
    array[_places(array.shape, layout, at, dims)] = values


def shape_of_part(shape: Sequence[int], layout: Layout) -> tuple[int, ...]:
    """The shape of a rank's part of an array of this shape. Raises ShapeError for what a dim is
    where it does not divide.
    """
    for k, (extent, cuts) in enumerate(zip(shape, layout, strict=True)):
        ranks = math.prod(cut.ranks for cut in cuts)
        if extent % ranks and not all(cut.block.is_const for cut in cuts):
            raise ShapeError(
                f"an array of shape {tuple(shape)}: dimension {k} of {extent} is cut into {ranks} "
                "parts, which do not divide it; give a multiple"
            )
    return tuple(n.value for n in local_shape(tuple(map(const, shape)), layout))


def assembled(
    parts: Sequence[Array], shape: Sequence[int], layout: Layout, mesh: Mesh, dims: Dims = NONE
) -> Array:
    """The whole array of the parts of all ranks of a mesh."""
    out = np.empty(tuple(shape), parts[0].dtype)
    for rank, values in enumerate(parts):
        put(out, values, layout, mesh.coordinates(rank), dims)
    return out

"""A tensor's elements several times over: repeat, tile, repeat_interleave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from luminal import dtypes
from luminal.errors import ShapeError
from luminal.frontend.handle import (
    Array,
    Extent,
    axis_of,
    describe,
    is_tensor,
    listed,
    numpy_names,
)
from luminal.frontend.indexing import take
from luminal.frontend.movement import expand, ravel, reshape, unsqueeze
from luminal.frontend.ordered import cumsum
from luminal.frontend.search import searchsorted
from luminal.hlir.data import array_of, is_array
from luminal.shape.expression import const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def repeat(
    x: Tensor, *times: Extent | Sequence[Extent], axis: int | None = None, dim: int | None = None
) -> Tensor:
    """`x` tiled: times[k] copies along dim k, counted from the last dim, as PyTorch's repeat.

    One view. Raises ShapeError for fewer entries than dims; `tile` takes those. NumPy's repeat, of
    elements along one dim, is `repeat_interleave`: ShapeError where a dim is named.
    """
    if axis is not None or dim is not None:
        raise ShapeError(
            "repeat: it tiles, as PyTorch's, and takes a count for every dim; for NumPy's, which "
            "repeats elements along a dim, use repeat_interleave"
        )
    counts = x.graph.extents(listed(times))
    if len(counts) < x.ndim:
        raise ShapeError(f"repeat: {listed(times)} has fewer entries than {describe(x)} has dims")
    x = reshape(x, (const(1),) * (len(counts) - x.ndim) + x.extents)
    pairs = [pair for n in x.extents for pair in (const(1), n)]
    wide = [n for count, extent in zip(counts, x.extents, strict=True) for n in (count, extent)]
    merged = tuple(count * n for count, n in zip(counts, x.extents, strict=True))
    return reshape(expand(reshape(x, pairs), wide), merged)


def tile(x: Tensor, *times: Extent | Sequence[Extent]) -> Tensor:
    """As `repeat`; dims without an entry, at the front, are not repeated."""
    given = listed(times)
    return repeat(x, (*(1,) * (x.ndim - len(given)), *given))


@numpy_names
def repeat_interleave(
    x: Tensor,
    repeats: Extent | Sequence[int] | Array | Tensor,
    dim: int | None = None,
    output_size: Extent | None = None,
) -> Tensor:
    """Each element along `dim` several times in a row, as NumPy's repeat; None: of x flattened.

    `repeats` is one count, then this is a view, or a literal count for each element, then it is a
    take. Counts that a Tensor holds need `output_size`, their sum, which the shape does not tell:
    ShapeError without it.
    """
    if dim is None:
        return repeat_interleave(ravel(x), repeats, 0)
    axis = axis_of("repeat_interleave", dim, x.ndim)
    if is_tensor(repeats) and output_size is not None:
        ends = cumsum(repeats, 0)
        return take(x, searchsorted(ends, x.graph.arange(output_size), right=True), axis)
    if is_tensor(repeats):
        raise ShapeError(
            f"repeat_interleave: {describe(repeats)} would decide the shape; give output_size"
        )
    if isinstance(repeats, tuple | list) or is_array(repeats):
        counts = array_of(repeats, dtypes.int64, "repeat_interleave")
        if counts.shape == (1,):
            return repeat_interleave(x, int(counts[0]), axis)
        if const(counts.size) != x.extents[axis] or counts.ndim != 1:
            raise ShapeError(
                f"repeat_interleave: {counts.size} counts for {x.extents[axis]} elements; "
                "give one for each"
            )
        return take(x, np.repeat(np.arange(counts.size), counts), axis)
    wide = list(unsqueeze(x, axis + 1).extents)
    wide[axis + 1] = x.graph.extent(cast(Extent, repeats))
    merged = (*x.extents[:axis], x.extents[axis] * wide[axis + 1], *x.extents[axis + 1 :])
    return reshape(expand(unsqueeze(x, axis + 1), wide), merged)

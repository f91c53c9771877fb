"""Several tensors as one, one tensor as several, and one several times over."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import numpy as np

from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.handle import (
    Array,
    Extent,
    axis_of,
    describe,
    is_tensor,
    listed,
    numpy_names,
    together,
)
from luminal.frontend.movement.indexing import take
from luminal.frontend.movement.views import (
    concat,
    expand,
    narrow,
    pad,
    ravel,
    reshape,
    select,
    stack,
    unsqueeze,
)
from luminal.frontend.pointwise.binary import broadcast, common_shape, promotion
from luminal.frontend.reduce.reductions import cumsum
from luminal.frontend.reduce.searching import searchsorted
from luminal.memory.data import array_of, is_array
from luminal.shape.expression import Expression, ceil_div, const, maximum, minimum, sum_of

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def _several(what: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in the one graph that records what is done with them."""
    if not tensors:
        raise ShapeError(f"{what}: no tensors; give at least one")
    graph, values = together(*tensors)
    return [graph.wrap(value) for value in values]


def _raised(rank: int, x: Tensor) -> Tensor:
    """`x` with dims of extent 1 up to `rank`, 1 to 3, where NumPy and PyTorch put them."""
    behind = 1 if rank == 3 and x.ndim else 0  # (n,) becomes (1, n, 1)
    missing = rank - x.ndim
    if missing <= 0:
        return x
    one = const(1)
    return reshape(x, (*(one,) * (missing - behind), *x.extents, *(one,) * behind))


def atleast_1d(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
    """A 0-d tensor as (1,), others as they are; a tuple for several."""
    return _each(1, tensors)


def atleast_2d(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
    """The tensor with dims of extent 1 in front up to 2 dims; a tuple for several."""
    return _each(2, tensors)


def atleast_3d(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
    """(n,) as (1, n, 1) and (m, n) as (m, n, 1); a tuple for several."""
    return _each(3, tensors)


def _each(rank: int, tensors: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    raised = tuple(_raised(rank, x) for x in listed(tensors))
    return raised[0] if len(tensors) == 1 and is_tensor(tensors[0]) else raised


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """One after the other along the second dim, 1-d tensors along the first."""
    parts = [_raised(1, x) for x in _several("hstack", tensors)]
    return concat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """One below the other along the first dim; 1-d tensors are rows."""
    return concat([_raised(2, x) for x in _several("vstack", tensors)], 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """One behind the other along the third dim."""
    return concat([_raised(3, x) for x in _several("dstack", tensors)], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side along the second dim; 1-d tensors are columns."""
    parts = [reshape(x, -1, 1) if x.ndim < 2 else x for x in _several("column_stack", tensors)]
    return concat(parts, 1)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All in their common shape."""
    parts = _several("broadcast_tensors", tensors)
    shape = common_shape("broadcast_tensors", parts)
    return tuple(broadcast(x, shape) for x in parts)


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids of 1-d (or 0-d) tensors, as PyTorch: "xy" exchanges the first two.

    NumPy's default is "xy". Each is one expand.
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(f'meshgrid: indexing={indexing!r} is not known; use "xy" or "ij"')
    parts = [_raised(1, x) for x in _several("meshgrid", listed(tensors))]
    for x in parts:
        if x.ndim != 1:
            raise ShapeError(f"meshgrid: {describe(x)} is not 1-d; flatten it first")
    places = list(range(len(parts)))
    if indexing == "xy" and len(parts) > 1:
        places[:2] = 1, 0
    shape = [const(1)] * len(parts)
    for place, x in zip(places, parts, strict=True):
        shape[place] = x.extents[0]
    grids = []
    for place, x in zip(places, parts, strict=True):
        ones = [const(1)] * len(parts)
        ones[place] = x.extents[0]
        grids.append(expand(reshape(x, ones), shape))
    return tuple(grids)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every combination of elements of 1-d tensors, a row each, the last one fastest."""
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape(x, -1) for x in meshgrid(*tensors, indexing="ij")], 1)


def block_diag(*tensors: Tensor) -> Tensor:
    """The matrices along the diagonal, 0 elsewhere; 1-d and 0-d tensors are rows."""
    parts = [_raised(2, x) for x in _several("block_diag", tensors)]
    dtype = promotion(parts)
    width = const(0)
    for x in parts:
        if x.ndim != 2:
            raise ShapeError(f"block_diag: {describe(x)} has more than 2 dims; give matrices")
        width = width + x.extents[1]
    rows, left = [], const(0)
    for x in parts:
        right = width - left - x.extents[1]
        rows.append(pad(x.cast(dtype), [(0, 0), (left, right)]))
        left = left + x.extents[1]
    return concat(rows, 0)


# --- splitting ------------------------------------------------------------------------------------


def _literal(what: str, x: Tensor, axis: int) -> int:
    """The extent along `axis`; raises ShapeError where it is symbolic."""
    extent = x.extents[axis]
    if not extent.is_const:
        raise ShapeError(
            f"{what}: dim {axis} of {describe(x)} has no literal extent, which says how many parts "
            "there are; use chunk or tensor_split, or split with sizes"
        )
    return extent.value


@numpy_names
def split(
    x: Tensor, sizes: int | Expression | Sequence[Extent], dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts along `dim`: of the given sizes, or of one size with a smaller last part."""
    axis = axis_of("split", dim, x.ndim)
    extent = x.extents[axis]
    if isinstance(sizes, int | Expression):
        if isinstance(sizes, Expression) or sizes < 1:
            raise ShapeError(f"split: {extent} by {sizes}; give a list of sizes, or a size >= 1")
        whole, rest = divmod(_literal("split", x, axis), sizes)
        sizes = [sizes] * whole + ([rest] if rest or not whole else [])
    counts = [x.graph.extent(n) for n in sizes]
    total = sum_of(counts)
    if total != extent:
        if total.is_const and extent.is_const:
            raise ShapeError(
                f"split: sizes {tuple(sizes)} add up to {total}, dim {axis} has {extent}"
            )
        x.graph.require(total.eq(extent), f"split: sizes {tuple(sizes)} of dim {axis}")
    return _between(x, axis, [sum_of(counts[:k]) for k in range(len(counts) + 1)])


def _between(x: Tensor, axis: int, bounds: Sequence[Expression]) -> tuple[Tensor, ...]:
    """The parts between neighbouring positions."""
    return tuple(narrow(x, axis, start, stop - start) for start, stop in pairwise(bounds))


@numpy_names
def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Up to `chunks` parts along `dim` of one size, the last one smaller if it does not divide.

    As PyTorch: 5 elements in 4 chunks are 2, 2, 1. Of a symbolic extent there are `chunks` parts
    always; a run in which there would be fewer is refused.
    """
    axis = axis_of("chunk", dim, x.ndim)
    if chunks < 1:
        raise ShapeError(f"chunk: {chunks} chunks; give at least 1")
    extent = x.extents[axis]
    size = extent.exact_div(chunks)
    if size is not None:
        return split(x, [size] * chunks, axis)
    # The number of parts must be known now: it is the length of a tuple.
    size = ceil_div(extent, chunks)
    if extent.is_const:
        return split(x, size.value, axis)
    x.graph.require(size * (chunks - 1) < extent, f"chunk: {chunks} parts of dim {axis}")
    return _between(x, axis, [*(size * k for k in range(chunks)), extent])


@numpy_names
def tensor_split(
    x: Tensor, indices_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts along `dim`: between the given positions, or as many, the first ones one longer.

    As NumPy's array_split.
    """
    axis = axis_of("tensor_split", dim, x.ndim)
    extent = x.extents[axis]
    if isinstance(indices_or_sections, int | np.integer):
        count = int(indices_or_sections)
        if count < 1:
            raise ShapeError(f"tensor_split: {count} sections; give at least 1")
        # The first `longer` parts have one element more; bounds of symbolic extents are Expressions
        # too.
        size, longer = extent // count, extent % count
        return _between(x, axis, [size * k + minimum(longer, k) for k in range(count + 1)])
    cuts = [
        minimum(cut, extent) if cut >= 0 else maximum(extent + cut, 0)
        for cut in map(int, indices_or_sections)
    ]
    pairs = zip([const(0), *cuts], [*cuts, extent], strict=True)
    return tuple(narrow(x, axis, start, maximum(stop - start, 0)) for start, stop in pairs)


def hsplit(x: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Parts along the second dim, of a 1-d tensor the first; sections are equal."""
    return _equal_split("hsplit", x, indices_or_sections, 0 if x.ndim == 1 else 1)


def vsplit(x: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Parts along the first dim of a tensor of 2 dims or more; sections are equal."""
    axis_of("vsplit", 1, x.ndim)
    return _equal_split("vsplit", x, indices_or_sections, 0)


def dsplit(x: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Parts along the third dim; sections are equal."""
    return _equal_split("dsplit", x, indices_or_sections, 2)


def _equal_split(
    what: str, x: Tensor, indices_or_sections: int | Sequence[int], dim: int
) -> tuple[Tensor, ...]:
    axis = axis_of(what, dim, x.ndim)
    if isinstance(indices_or_sections, int):
        extent, sections = x.extents[axis], indices_or_sections
        if sections < 1 or (extent.is_const and extent.value % sections):
            raise ShapeError(f"{what}: {extent} does not divide into {sections}; use tensor_split")
        x.graph.require((extent % sections).eq(0), f"{what}: {sections} sections of dim {axis}")
    return tensor_split(x, indices_or_sections, axis)


@numpy_names
def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices at each position of `dim`, which goes away; its extent is literal."""
    axis = axis_of("unbind", dim, x.ndim)
    return tuple(select(x, axis, k) for k in range(_literal("unbind", x, axis)))


# --- repeating ------------------------------------------------------------------------------------


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
    # (n,) as (1, n), expanded to (times, n), merged: index i reads i % n, and nothing is copied.
    pairs = [pair for n in x.extents for pair in (const(1), n)]
    wide = [n for count, extent in zip(counts, x.extents, strict=True) for n in (count, extent)]
    merged = tuple(count * n for count, n in zip(counts, x.extents, strict=True))
    return reshape(expand(reshape(x, pairs), wide), merged)


def tile(x: Tensor, *times: Extent | Sequence[Extent]) -> Tensor:
    """The tensor repeated as a whole; dims without an entry, at the front, are not repeated."""
    counts = listed(times)
    return repeat(x, (*(1,) * (x.ndim - len(counts)), *counts))


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
        # Position p is of the first element whose repetitions end behind p.
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

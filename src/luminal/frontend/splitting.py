"""A tensor cut into several along one dim: views, nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from luminal.errors import ShapeError
from luminal.frontend.handle import Extent, axis_of, describe, numpy_names
from luminal.frontend.movement import narrow, select
from luminal.shape.expression import Expression, ceil_div, const, maximum, minimum, sum_of

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


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

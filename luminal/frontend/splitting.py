"""A tensor cut into several along one dim: views, nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from luminal.errors import ShapeError
from luminal.frontend.handle import Extent, axis_of, describe, numpy_names
from luminal.frontend.movement import narrow, select
from luminal.shape.expression import sum_of

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def _literal(what: str, x: Tensor, axis: int) -> int:
    """The extent along `axis`; raises ShapeError where it is symbolic."""
    extent = x.extents[axis]
    if not extent.is_const:
        raise ShapeError(
            f"{what}: dim {axis} of {describe(x)} has no literal extent; use split with sizes"
        )
    return extent.value


@numpy_names
def split(x: Tensor, sizes: int | Sequence[Extent], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts along `dim`: of the given sizes, or of one size with a smaller last part."""
    axis = axis_of("split", dim, x.ndim)
    extent = x.extents[axis]
    if isinstance(sizes, int):
        if sizes < 1 or not extent.is_const:
            raise ShapeError(f"split: {extent} by {sizes}; give a list of sizes, or a size >= 1")
        whole, rest = divmod(extent.value, sizes)
        sizes = [sizes] * whole + ([rest] if rest or not whole else [])
    counts = [x.graph.extent(n) for n in sizes]
    total = sum_of(counts)
    if total != extent:
        raise ShapeError(f"split: sizes {tuple(sizes)} add up to {total}, dim {axis} has {extent}")
    starts = [sum_of(counts[:k]) for k in range(len(counts))]
    return tuple(narrow(x, axis, a, n) for a, n in zip(starts, counts, strict=True))


@numpy_names
def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Up to `chunks` parts along `dim` of one size, the last one smaller if it does not divide.

    As PyTorch: 5 elements in 4 chunks are 2, 2, 1. A symbolic extent has to divide.
    """
    axis = axis_of("chunk", dim, x.ndim)
    if chunks < 1:
        raise ShapeError(f"chunk: {chunks} chunks; give at least 1")
    size = x.extents[axis].exact_div(chunks)
    if size is not None:
        return split(x, [size] * chunks, axis)
    if not x.extents[axis].is_const:
        raise ShapeError(f"chunk: dim {axis} of {describe(x)} does not divide by {chunks}")
    return split(x, -(-x.extents[axis].value // chunks), axis)


@numpy_names
def tensor_split(
    x: Tensor, indices_or_sections: int | Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """Parts along `dim`: between the given positions, or as many, the first ones one longer.

    As NumPy's array_split. The extent is literal.
    """
    axis = axis_of("tensor_split", dim, x.ndim)
    extent = _literal("tensor_split", x, axis)
    if isinstance(indices_or_sections, int | np.integer):
        count = int(indices_or_sections)
        if count < 1:
            raise ShapeError(f"tensor_split: {count} sections; give at least 1")
        size, longer = divmod(extent, count)
        sizes = [size + (k < longer) for k in range(count)]
        bounds = [sum(sizes[:k]) for k in range(count + 1)]
        pairs = list(pairwise(bounds))
    else:
        cuts = [slice(None, int(cut)).indices(extent)[1] for cut in indices_or_sections]
        pairs = list(zip([0, *cuts], [*cuts, extent], strict=True))
    return tuple(narrow(x, axis, start, max(stop - start, 0)) for start, stop in pairs)


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
        extent = _literal(what, x, axis)
        if indices_or_sections < 1 or extent % indices_or_sections:
            raise ShapeError(
                f"{what}: {extent} does not divide into {indices_or_sections}; use tensor_split"
            )
    return tensor_split(x, indices_or_sections, axis)


@numpy_names
def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices at each position of `dim`, which goes away; its extent is literal."""
    axis = axis_of("unbind", dim, x.ndim)
    return tuple(select(x, axis, k) for k in range(_literal("unbind", x, axis)))

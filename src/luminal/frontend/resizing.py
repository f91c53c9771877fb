"""Back to a smaller shape, and into a strided part: sum_to_size, as_strided_scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from luminal import dtypes
from luminal.errors import ShapeError
from luminal.frontend.creation import position
from luminal.frontend.handle import Extent, along, describe, listed
from luminal.frontend.movement import ravel, reshape
from luminal.frontend.reduce import sum
from luminal.frontend.scatter import source_of, written
from luminal.shape.expression import Expression, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def sum_to_size(x: Tensor, *size: Extent | Sequence[Extent]) -> Tensor:
    """The sums that make x's shape `size`, which broadcasts to it: the reverse of expand."""
    wanted = x.graph.extents(listed(size))
    lead = x.ndim - len(wanted)
    pairs = list(zip(wanted, x.extents[max(lead, 0) :], strict=False))
    if lead < 0 or any(n not in (const(1), m) for n, m in pairs):
        shape = ", ".join(map(str, wanted))
        raise ShapeError(f"sum_to_size: ({shape}) does not broadcast to {describe(x)}")
    axes = [*range(lead), *(lead + k for k, (n, m) in enumerate(pairs) if n != m)]
    total = sum(x, axes, keepdim=True) if axes else x
    return reshape(total, wanted)


def as_strided_scatter(
    x: Tensor,
    src: Tensor,
    size: Sequence[Extent],
    stride: Sequence[int],
    storage_offset: int = 0,
) -> Tensor:
    """x with `src` where `x.as_strided(size, stride, storage_offset)` reads; x counts row-major."""
    extents = x.graph.extents(tuple(size))
    if len(extents) != len(stride) or src.extents != extents:
        raise ShapeError(
            f"as_strided_scatter: the source {describe(src)}, {len(extents)} sizes and "
            f"{len(stride)} strides; they have one shape"
        )
    at: Expression = const(storage_offset)
    for k, step in enumerate(stride):
        at = at + along(k, extents[k]) * step
    places = ravel(position(x.graph, at, extents, dtypes.int64))
    flat = written(ravel(x), [places], ravel(source_of("as_strided_scatter", x, src)), "set")
    return reshape(flat, x.extents)

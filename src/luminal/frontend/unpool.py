"""The inverse of max pooling: values go back to where they were found, zeros elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from luminal.errors import ShapeError
from luminal.frontend.handle import Extent, describe
from luminal.frontend.movement import reshape
from luminal.frontend.scatter import scatter
from luminal.frontend.windows import Ints, per_dim, with_batch
from luminal.shape.expression import product_of

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Sizes = Sequence[Extent] | None


def max_unpool1d(
    x: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sizes = None,
) -> Tensor:
    """`x` at the positions that `max_pool1d` returned; see `max_unpool2d`."""
    return _unpooled("max_unpool1d", 1, x, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    x: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sizes = None,
) -> Tensor:
    """`x` at the positions that `max_pool2d(return_indices=True)` gave, zeros elsewhere.

    An extent n becomes (n-1) * stride - 2 * padding + kernel, or what `output_size` says.
    Scatter into zeros; where positions repeat, the last one wins. Raises ShapeError where shapes
    differ.
    """
    return _unpooled("max_unpool2d", 2, x, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    x: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    output_size: Sizes = None,
) -> Tensor:
    """`x` at the positions that `max_pool3d` returned; see `max_unpool2d`."""
    return _unpooled("max_unpool3d", 3, x, indices, kernel_size, stride, padding, output_size)


def _unpooled(
    what: str,
    rank: int,
    x: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: Ints | None,
    padding: Ints,
    output_size: Sizes,
) -> Tensor:
    with_batch(what, x, rank)
    if indices.extents != x.extents:
        raise ShapeError(
            f"{what}: the indices {describe(indices)} and {describe(x)} differ in shape; "
            "give those that max_pool returned with the values"
        )
    kernel = per_dim(what, "kernel_size", kernel_size, rank)
    steps = kernel if not stride else per_dim(what, "stride", stride, rank)
    pads = per_dim(what, "padding", padding, rank, 0)
    lead = x.extents[:-rank]
    spatial = [
        (n - 1) * step - 2 * pad + size
        for n, step, pad, size in zip(x.extents[-rank:], steps, pads, kernel, strict=True)
    ]
    if output_size is not None:
        spatial = list(x.graph.extents(list(output_size)[-rank:]))
    found = reshape(indices, *lead, product_of(x.extents[-rank:]))
    values = reshape(x, found.extents)
    flat = x.graph.zeros((*lead, product_of(spatial)), x.dtype)
    return reshape(scatter(flat, -1, found, values), *lead, *spatial)

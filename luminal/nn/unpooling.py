"""Layers that put pooled values back where they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from luminal.errors import ShapeError
from luminal.frontend.handle import describe
from luminal.frontend.tensor import Tensor
from luminal.frontend.windows import Ints, per_dim
from luminal.nn.module import Module
from luminal.shape.expression import product_of


class _MaxUnpool(Module):
    """The inverse of MaxPool with `return_indices`: its values at the indices, 0 elsewhere."""

    rank: ClassVar[int]

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        name = type(self).__name__
        self.kernel_size = per_dim(name, "kernel_size", kernel_size, self.rank)
        steps = self.kernel_size if stride is None else stride
        self.stride = per_dim(name, "stride", steps, self.rank)
        self.padding = per_dim(name, "padding", padding, self.rank, 0)

    def forward(
        self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        """Both ([batch,] channels, *counts), to ([batch,] channels, *sizes).

        `output_size` says which of the sizes that pool to `counts`; by default the least.
        """
        if x.ndim <= self.rank or x.extents != indices.extents:
            raise ShapeError(
                f"{type(self).__name__}: {describe(x)} at {describe(indices)}; both have one "
                f"shape, of {self.rank + 1} or {self.rank + 2} dims"
            )
        first = x.ndim - self.rank
        sizes = [
            (n - 1) * step - 2 * pad + size
            for n, step, pad, size in zip(
                x.extents[first:], self.stride, self.padding, self.kernel_size, strict=True
            )
        ]
        if output_size is not None:
            sizes = [x.graph.extent(n) for n in output_size[-self.rank :]]
        empty = x.graph.full((*x.extents[:first], product_of(sizes)), 0, x.dtype)
        filled = empty.scatter(first, indices.flatten(first), x.flatten(first))
        return filled.unflatten(first, sizes)


class MaxUnpool1d(_MaxUnpool):
    """Of the last dim."""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """Of the last two dims."""

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """Of the last three dims."""

    rank = 3

"""A module that stands in for pyobjc's MetalPerformanceShaders: products on the host, by rows, when
the command buffer that they were put into runs. It refuses what Apple's documentation refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from luminal.backends.metal.shaders import FLOAT32, INITIALIZER

Array = np.ndarray[Any, Any]


class Descriptor(NamedTuple):
    rows: int
    columns: int
    row_bytes: int


def describe(rows: int, columns: int, row_bytes: int, dtype: int) -> Descriptor:
    if dtype != FLOAT32 or rows < 1 or columns < 1:
        raise ValueError(f"no matrix of {rows} x {columns}, dtype {dtype:#x}")
    if row_bytes < 4 * columns or row_bytes % 4:
        raise ValueError(f"rows of {columns} elements every {row_bytes} bytes")
    return Descriptor(rows, columns, row_bytes)


class Matrix(NamedTuple):
    buffer: Any
    start: int
    shape: Descriptor

    @property
    def elements(self) -> Array:
        """A view of the buffer; IndexError beyond its end."""
        rows, columns, step = self.shape
        if self.start % 4 or self.start + (rows - 1) * step + 4 * columns > self.buffer.length():
            raise IndexError("a matrix beyond its buffer")
        return np.ndarray((rows, columns), np.float32, self.buffer.bytes, self.start, (step, 4))


def _matrix(buffer: Any, start: int, shape: Descriptor) -> Matrix:
    return Matrix(buffer, start, shape)


class Multiplication:
    def __init__(self, *told: Any) -> None:
        _, self.left, self.right, self.m, self.n, self.k, self.alpha, self.beta = told

    def encodeToCommandBuffer_leftMatrix_rightMatrix_resultMatrix_(
        self, commands: Any, left: Matrix, right: Matrix, result: Matrix
    ) -> None:
        wanted = [(self.m, self.k), (self.k, self.n), (self.m, self.n)]
        turned = [self.left, self.right, False]
        for matrix, shape, is_turned in zip((left, right, result), wanted, turned, strict=True):
            if matrix.shape[:2] != (shape[::-1] if is_turned else shape):
                raise ValueError(f"a matrix {matrix.shape} where {shape} is wanted, {is_turned=}")

        def run() -> None:
            a, b = (
                x.elements.T if t else x.elements
                for x, t in ((left, self.left), (right, self.right))
            )
            result.elements[...] = self.alpha * (a @ b) + self.beta * 0

        commands.work.append(run)


def _allocated(name: str, make: Callable[..., Any]) -> Any:
    return SimpleNamespace(alloc=lambda: SimpleNamespace(**{name: make}))


MPSMatrixDescriptor = SimpleNamespace(matrixDescriptorWithRows_columns_rowBytes_dataType_=describe)
MPSMatrix = _allocated("initWithBuffer_offset_descriptor_", _matrix)
MPSMatrixMultiplication = _allocated(INITIALIZER, Multiplication)

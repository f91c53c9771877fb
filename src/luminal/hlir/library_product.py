"""Products of matrices that a vendor's library computes: what one is told, and its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from luminal.base.dtypes import DType
from luminal.base.records import dataclass


class Steps(NamedTuple):
    """Where a matrix of a batch lies: its first element, and how many elements there are from one
    matrix, row or column to the next.
    """

    start: int
    batch: int
    row: int
    column: int

    def positions(self, batch: int, rows: int, columns: int) -> NDArray[np.int64]:
        """The element of memory of each element of the matrices."""
        along = (
            np.arange(count, dtype=np.int64) * step
            for count, step in zip((batch, rows, columns), self[1:], strict=True)
        )
        in_batch, in_rows, in_columns = along
        return self.start + in_batch[:, None, None] + in_rows[:, None] + in_columns


class Geometry(NamedTuple):
    """The extents of a product and where its operands lie, in elements; `bias` is its first."""

    batch: int
    m: int
    n: int
    k: int
    a: Steps
    b: Steps
    c: Steps
    bias: int

    @classmethod
    def of(cls, numbers: Sequence[int]) -> Self:
        """The geometry of numbers in this order, one after the other."""
        batch, m, n, k = numbers[:4]
        a, b, c = (Steps(*numbers[place : place + 4]) for place in (4, 8, 12))
        return cls(batch, m, n, k, a, b, c, numbers[16])


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """`c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]`, plus a bias along n where
    it `has_bias`, by a library's function: its `algorithm`-th for such a product.

    Sums are kept in the `accumulator`; the bias has the dtype of c and is added before c is
    rounded.
    """

    library: str
    algorithm: int
    a: DType
    b: DType
    accumulator: DType
    c: DType
    has_bias: bool

    @property
    def text(self) -> str:
        """All of it in a line: equal products have equal texts."""
        bias = " + bias" if self.has_bias else ""
        factors = f"{self.a} * {self.b} in {self.accumulator}"
        return f"{self.library} {self.algorithm}: {factors}{bias} -> {self.c}"

    def evaluate(self, *given: Any) -> None:
        """Computes it in NumPy, given the memory of a, b, the bias if any, and c, and then the
        numbers of a Geometry. Raises IndexError for steps that lead out of memory.
        """
        arrays, numbers = given[: 3 + self.has_bias], given[3 + self.has_bias :]
        a, b, *bias, c = arrays
        g = Geometry.of(numbers)
        left = a[g.a.positions(g.batch, g.m, g.k)].astype(self.accumulator.numpy)
        right = b[g.b.positions(g.batch, g.k, g.n)].astype(self.accumulator.numpy)
        product = np.matmul(left, right)
        for memory in bias:
            product = product + memory[g.bias + np.arange(g.n)].astype(self.accumulator.numpy)
        c[g.c.positions(g.batch, g.m, g.n)] = product.astype(self.c.numpy)

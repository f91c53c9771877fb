"""Squares of vectors turned by shuffles, and sums that are written row by row."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from luminal.base.dtypes import DType
from luminal.compiler.compile import lower_to_program
from luminal.expand.builder import Builder
from luminal.expand.expand import expand
from luminal.expand.ir import Apply, Constant, Operand, Type
from luminal.expand.operations import OPERATIONS
from luminal.expand.shuffled import turned
from tests.machines import vectors

MACHINE = vectors(512, registers=32)


@pytest.mark.parametrize("dtype", [lm.uint8, lm.uint16, lm.float32, lm.float64], ids=str)
@pytest.mark.parametrize("count", [2, 4, 8, 16, 32])
def test_squares_are_turned(dtype: DType, count: int) -> None:
    """In as many rounds as a line has halves, each of a shuffle a line."""
    b = Builder()
    rows: list[Operand] = [b.value(Type(dtype, count)) for _ in range(count)]
    square = np.arange(count * count).reshape(count, count)
    known = {row.id: line for row, line in zip(rows, square, strict=True)}  # type: ignore[union-attr]

    def value(operand: Operand) -> np.ndarray:
        if isinstance(operand, Constant):
            return operand.values
        if operand.id not in known:
            made = b.made[operand.id]
            assert made.op == "shuffle"
            known[operand.id] = OPERATIONS["shuffle"].meaning(*map(value, made.args))
        return known[operand.id]

    columns = turned(b, rows)
    assert np.array_equal([value(column) for column in columns], square.T)
    assert len(b.made) == count * (count.bit_length() - 1)


def test_two_sums_of_a_tile_are_written_row_by_row() -> None:
    """Each row of the tile is read by both before the next one is."""
    cx = lm.Graph()
    x, w, v = (cx.tensor((n, 256), name=name) for n, name in ((64, "x"), (512, "w"), (512, "v")))
    ((x @ w.T) * (x @ v.T)).output("y")
    (kernel,) = lower_to_program(cx.graph(), MACHINE).kernels
    sums = [s for s in expand(kernel, 16).statements() if isinstance(s, Apply) and s.op == "fma"]
    rows = [s.args[0] for s in sums]
    seen = [row for k, row in enumerate(rows) if k == 0 or row is not rows[k - 1]]
    assert len(seen) == len({*seen})

"""Kernels by groups of lanes, written by hand in expanded IR."""

from __future__ import annotations

from luminal.base import dtypes
from luminal.kernel.lanes import Lanes
from luminal.kernel.tile_ir import (
    Buffer,
    Carry,
    Grid,
    Kernel,
    Literal,
    Load,
    Loop,
    Map,
    Reduce,
    Role,
    Space,
    Statement,
    Store,
    Tile,
)
from luminal.shape.expression import Expression, axis, const, minimum

F32 = dtypes.float32


def row_sums(
    rows: int, n: int, lanes: int, shared_rows: int, unroll: int, *,
    apart: bool = False, run: int = 1,
) -> Kernel:  # fmt: skip
    """y[r] = sum of x[r, :], by groups that take `shared_rows` at once; lanes of a row follow each
    other, or those of all rows do (`apart`), and have `run` neighbours each.
    """
    own, others = Lanes(lanes, 1, run), Lanes(shared_rows, lanes)
    if apart:
        own, others = Lanes(lanes, shared_rows, run), Lanes(shared_rows)
    r, k, g = axis("r", rows), axis("k", n), axis("g", -(-rows // shared_rows))
    both = (r, k)
    zero, total = Tile(0, (), F32), Tile(5, (r,), F32)
    before, x, after, parts = (Tile(number, both, F32) for number in (1, 2, 3, 4))
    summed = Loop(
        k, const(0), const(n),
        (Load(x, "x", r * n + k), Map(after, "Add", (before, x))),
        (Carry(parts, zero, before, after),), unroll, 1, own,
    )  # fmt: skip
    each = (summed, Reduce(total, "Add", parts, k), Store("y", r + 0, total))
    last = minimum(g * shared_rows + shared_rows, const(rows))
    walk = Loop(r, g * shared_rows, last, each, (), 1, 1, others)
    return Kernel(
        (), (Buffer("x", F32, const(rows * n)), Buffer("y", F32, const(rows), role=Role.OUT)), (),
        (Grid(g, const(-(-rows // shared_rows))),), (Literal(zero, b"\0\0\0\0"), walk),
    )  # fmt: skip


def reversal(*between: Statement) -> Kernel:
    """y is x backwards, by way of a row that lanes share; twice."""
    n, lanes, g = 10, Lanes(4), axis("g", 2)
    walks: list[Statement] = []
    for number, (source, target, start) in enumerate((("x", "row", 0), ("row", "y", n - 1))):
        k = axis(f"k{number}", n)
        value = Tile(number, (k,), F32)
        at: Expression = start - k if start else k + 0
        body = (Load(value, source, at), Store(target, k + 0, value))
        walks.append(Loop(k, const(0), const(n), body, (), 1, 1, lanes))
    return Kernel(
        (), (Buffer("x", F32, const(n)), Buffer("y", F32, const(n), role=Role.OUT)),
        (Buffer("row", F32, const(n), Space.SCRATCH, Role.INOUT),), (Grid(g, const(2)),),
        (walks[0], *between, walks[1]),
    )  # fmt: skip

"""Data-dependent accesses, branches and sorts: verified, interpreted, rendered and run."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.kernel.tile_ir import SortRow
from luminal.shape.expression import as_expression, opaque
from tests.backends.cpu.tile_builder import TileBuilder, drawn_as, run_all
from tests.long_share import mostly_long


def rng() -> np.random.Generator:
    return np.random.default_rng(13)


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8"])
def test_gathered_rows(dtype: str) -> None:
    """An embedding: rows by index, columns contiguous; out of range reads 0."""
    n, rows, d = 6, 9, 40
    k = TileBuilder()
    k.buffer("table", rows * d)
    k.buffer("ids", n, dtype=dtype)
    k.buffer("y", n * d, "out")
    at = opaque("at")
    with k.loop("i", n, unroll=2) as i, k.loop("j", d, unroll=2, vector=16) as j:
        which = k.load("ids", i.axis)
        value = k.load("table", at * d + j.axis, (at >= 0) & (at < rows), [(at, which)])
        k.store("y", i.axis * d + j.axis, value)
    table = rng().standard_normal((rows, d), np.float32)
    ids = np.array([0, 8, 3, 200, 9, 3]).astype(k.buffers[1].dtype.numpy)
    out = run_all(k.kernel(), {"table": table, "ids": ids, "y": np.zeros((n, d), np.float32)})
    inside = (ids < rows)[:, None]
    np.testing.assert_array_equal(out["y"], np.where(inside, table[ids % rows], 0))


@pytest.mark.parametrize("dtype", ["f32", "i8", "bf16", "bool", "f64"])
def test_gathered_lanes(dtype: str) -> None:
    """An index per lane, with garbage among the indices."""
    n, size = 50, 30
    k = TileBuilder()
    k.buffer("x", size, dtype=dtype)
    k.buffer("ids", n, dtype="i64")
    k.buffer("y", n, "out", dtype)
    at = opaque("at")
    with k.loop("i", n, unroll=2, vector=16) as i:
        which = k.load("ids", i.axis)
        value = k.load("x", size - 1 - at, (at >= 0) & (at < size), [(at, which)])
        k.store("y", i.axis, value)
    real = k.buffers[0].dtype.numpy
    x = rng().integers(0, 2, size).astype(real)
    ids = rng().integers(-5, size + 5, n)
    ids[3], ids[4], ids[20] = -(2**63), 2**63 - 1, -1
    out = run_all(k.kernel(), {"x": x, "ids": ids, "y": np.zeros(n, real)})
    inside = (ids >= 0) & (ids < size)
    expected = np.where(inside, x[::-1][np.where(inside, ids, 0)].astype(np.float32), 0)
    np.testing.assert_array_equal(out["y"].astype(np.float32), expected)


def test_lanes_without_one_distance_are_stored_one_by_one() -> None:
    """Even positions go to the first half, odd ones to the second."""
    n = 53
    k = TileBuilder()
    k.buffer("x", n)
    k.buffer("y", n, "out")
    with k.loop("i", n, unroll=2, vector=8) as i:
        k.store("y", i.axis // 2 + i.axis % 2 * (n // 2 + 1), k.load("x", i.axis))
    x = rng().standard_normal(n, np.float32)
    out = run_all(k.kernel(), {"x": x, "y": np.zeros(n, np.float32)})
    np.testing.assert_array_equal(out["y"], np.concatenate([x[::2], x[1::2]]))


@pytest.mark.parametrize("vector", [1, 8])
@pytest.mark.parametrize("add", [False, True])
def test_scattered_stores_in_order(vector: int, add: bool) -> None:
    n, size = 53, 10
    k = TileBuilder()
    k.buffer("x", n)
    k.buffer("ids", n, dtype="i32")
    k.buffer("y", size, "inout")
    at = opaque("at", -(2**31), 2**31 - 1)
    with k.loop("i", n, unroll=2, vector=vector) as i:
        which = k.load("ids", i.axis)
        guard = (at >= 0) & (at < size)
        k.store("y", at, k.load("x", i.axis), guard, [(at, which)], add=add)
    x = rng().standard_normal(n, np.float32)
    ids = rng().integers(-1, size + 1, n, np.int32)
    y = np.ones(size, np.float32)
    out = run_all(k.kernel(), {"x": x, "ids": ids, "y": y})
    expected = y.copy()
    for value, where in zip(x, ids, strict=True):
        if 0 <= where < size:
            expected[where] = expected[where] + value if add else value
    np.testing.assert_array_equal(out["y"], expected)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("inner_rows", [False, True])
def test_scattered_rows(add: bool, inner_rows: bool) -> None:
    """Rows at data-dependent places, lanes contiguous; equal rows meet in order."""
    n, size, d = 7, 5, 20
    k = TileBuilder()
    k.buffer("x", n * d)
    k.buffer("ids", n, dtype="i64")
    k.buffer("y", size * d, "inout")
    at = opaque("at")
    loops = [("i", n, {"unroll": 2}), ("j", d, {"unroll": 1, "vector": 8})]
    first, second = loops[::-1] if inner_rows else loops
    with k.loop(*first[:2], **first[2]) as outer, k.loop(*second[:2], **second[2]) as inner:
        i, j = (inner.axis, outer.axis) if inner_rows else (outer.axis, inner.axis)
        guard = (at >= 0) & (at < size)
        value = k.load("x", i * d + j)
        k.store("y", at * d + j, value, guard, [(at, k.load("ids", i))], add=add)
    x = rng().standard_normal((n, d), np.float32)
    ids = np.array([1, 3, 1, 9, -1, 4, 3])
    out = run_all(k.kernel(), {"x": x, "ids": ids, "y": np.zeros((size, d), np.float32)})
    expected = np.zeros((size, d), np.float32)
    for row, where in zip(x, ids, strict=True):
        if 0 <= where < size:
            expected[where] = expected[where] + row if add else row
    np.testing.assert_array_equal(out["y"], expected)


def test_branch_and_serial_carry() -> None:
    """Only even rows are written; a prefix sum runs along each."""
    m, n = 6, 9
    k = TileBuilder()
    k.buffer("x", m * n, dtype="i64")
    k.buffer("y", m * n, "inout", "i64")
    row = k.grid("row", m)
    zero = k.literal(0, "i64")
    with k.branch((row % 2).eq(0)), k.loop("j", n, carry=[(zero, [])]) as j:
        total = k.map("Add", j.inner[0], k.load("x", row * n + j.axis))
        k.store("y", row * n + j.axis, total)
        j.next.append(total)
    x = rng().integers(0, 100, (m, n))
    out = run_all(k.kernel(), {"x": x, "y": np.full((m, n), -1)})
    expected = np.where(np.arange(m)[:, None] % 2 == 0, x.cumsum(1), -1)
    np.testing.assert_array_equal(out["y"], expected)


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 100, 513])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "u16", "i64"])
def test_sorted_columns(n: int, dtype: str) -> None:
    """Columns of a matrix: stable, NaN last, -0 equal to +0."""
    columns = 3
    k = TileBuilder()
    for name, role, kind in (("x", "in", dtype), ("v", "out", dtype), ("o", "out", "i64")):
        k.buffer(name, n * columns, role, kind)
    k.scratch("work", 2 * n, dtype)
    k.scratch("work_order", 2 * n, "i32")
    column = k.grid("column", columns)
    at = (column, as_expression(columns), as_expression(n))
    k.emit(SortRow("x", "v", "o", *at, "work", "work_order"))
    real = k.buffers[0].dtype.numpy
    x = drawn_as((rng().standard_normal((n, columns)) * 9).round(), real)
    if real.kind == "f" and n > 4:
        x[[2, n - 1], 1], x[[0, 4], 2], x[3, 2] = np.nan, -0.0, 0.0
    arrays = {"x": x, "v": np.zeros_like(x), "o": np.zeros((n, columns), np.int64)}
    out = run_all(k.kernel(), arrays)
    order = np.argsort(x, axis=0, kind="stable")
    np.testing.assert_array_equal(out["o"], order)
    np.testing.assert_array_equal(out["v"], np.take_along_axis(x, order, 0))


@pytest.mark.parametrize("dtype", ["f32", "u8", "bf16", "bool", "f64"])
@pytest.mark.parametrize("rows", mostly_long([16, 3, 2, 6, 14], 1))
def test_stores_across_the_lanes(rows: int, dtype: str) -> None:
    """Tiles of rows, whose lanes lie a column apart in the result; ragged ends of both axes."""
    n, d = 3 * rows + 1, 40
    k = TileBuilder()
    k.buffer("x", n * d, dtype=dtype)
    k.buffer("y", d * n, "out", dtype)
    with k.loop("i", n, unroll=rows) as i, k.loop("j", d, unroll=2, vector=16) as j:
        k.store("y", j.axis * n + i.axis, k.load("x", i.axis * d + j.axis))
    real = k.buffers[0].dtype.numpy
    x = rng().integers(0, 2 if dtype == "bool" else 200, (n, d)).astype(real)
    out = run_all(k.kernel(), {"x": x, "y": np.zeros((d, n), real)})
    np.testing.assert_array_equal(out["y"].astype(np.float64), x.T.astype(np.float64))

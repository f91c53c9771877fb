"""Reductions, contractions and carried values: verified, interpreted, rendered and run."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.kernel.tile_ir import Kernel
from luminal.shape.expression import axis, ceil_div, minimum
from tests.backends.cpu.tile_builder import TileBuilder, drawn_as, run_all
from tests.close import close, close_each
from tests.long_share import long_but, mostly_long


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def row_reduction(op: str, dtype: str, unroll: int, vector: int) -> Kernel:
    k = TileBuilder()
    rows, n = k.param("rows"), k.param("n")
    k.buffer("x", rows * n, dtype=dtype)
    k.buffer("y", rows, "out", dtype)
    row = k.grid("row", rows)
    lowest = k.buffers[0].dtype.lowest
    init = k.literal(lowest if op == "Maximum" else 1 if op == "Mul" else 0, dtype)
    own = ["self"] if unroll * vector > 1 else []
    with k.loop("j", n, unroll=unroll, vector=vector, carry=[(init, own)]) as j:
        j.next.append(k.map(op, j.inner[0], k.load("x", row * n + j.axis)))
    total = j.results[0]
    k.store("y", row, k.reduce(op, total, j.axis) if own else total)
    return k.kernel()


@pytest.mark.parametrize(
    "dtype", long_but(["f32", "f64", "i32", "i64", "u8"], ("f32", "i64", "u8"))
)
@pytest.mark.parametrize("op", mostly_long(["Add", "Maximum", "Mul"], 2))
def test_rows(op: str, dtype: str) -> None:
    function = {"Add": np.sum, "Maximum": np.max, "Mul": np.prod}[op]
    for unroll, vector in ((4, 16), (3, 1), (1, 8), (1, 1)):
        kernel = row_reduction(op, dtype, unroll, vector)
        for n in (1, 5, 16, 67, 200):
            real = np.dtype(kernel.buffers[0].dtype.numpy)
            x = drawn_as(rng().standard_normal((3, n)) * 2, real)
            out = run_all(kernel, {"x": x, "y": np.zeros(3, real)}, {"rows": 3, "n": n})
            options = {"dtype": real} if op != "Maximum" else {}
            close(out["y"], function(x, axis=1, **options), ulp=8)


def test_empty_and_special_rows() -> None:
    kernel = row_reduction("Maximum", "f32", 2, 16)
    x = np.full((5, 70), -np.inf, np.float32)
    x[1, 3], x[2, 66], x[3, 2], x[4, :] = np.nan, np.nan, np.inf, -0.0
    x[4, 69] = 0.0
    out = run_all(kernel, {"x": x, "y": np.zeros(5, np.float32)}, {"rows": 5, "n": 70})
    np.testing.assert_array_equal(out["y"], [-np.inf, np.nan, np.nan, np.inf, 0.0])
    assert not np.signbit(out["y"][4])
    empty = np.zeros((5, 0), np.float32)
    out = run_all(kernel, {"x": empty, "y": np.zeros(5, np.float32)}, {"rows": 5, "n": 0})
    assert (out["y"] == -np.inf).all()


@pytest.mark.parametrize("n", [1, 16, 40, 64, 77])
def test_columns(n: int) -> None:
    """The vector axis is free, the reduction serial; partial sums of two rows."""
    m = 13
    k = TileBuilder()
    k.buffer("x", m * n)
    k.buffer("y", n, "out")
    zero = k.literal(0.0)
    with k.loop("j", n, unroll=2, vector=16) as j:
        with k.loop("i", m, unroll=2, carry=[(zero, [j.axis, "self"])]) as i:
            i.next.append(k.map("Add", i.inner[0], k.load("x", i.axis * n + j.axis)))
        k.store("y", j.axis, k.reduce("Add", i.results[0], i.axis))
    x = rng().standard_normal((m, n), np.float32)
    out = run_all(k.kernel(), {"x": x, "y": np.zeros(n, np.float32)})
    close(out["y"], x.sum(0))


def test_partial_results_through_an_outer_loop() -> None:
    """One row of partial sums lives through two nested loops and is folded once."""
    m, n = 5, 70
    k = TileBuilder()
    k.buffer("x", m * n)
    k.buffer("y", 1, "out")
    lanes = axis("j", n)
    with k.loop("i", m, carry=[(k.literal(0.0), [lanes])]) as i:
        with k.loop("j", n, unroll=2, vector=16, carry=[(i.inner[0], ["self"])]) as j:
            j.next.append(k.map("Add", j.inner[0], k.load("x", i.axis * n + j.axis)))
        i.next.append(j.results[0])
    k.store("y", 0, k.reduce("Add", i.results[0], lanes))
    x = rng().standard_normal((m, n), np.float32)
    out = run_all(k.kernel(), {"x": x, "y": np.ones(1, np.float32)})
    close_each(out["y"], [x.sum()], ulp=16)


def softmax(rows: int, n: int, unroll: int = 4, vector: int = 16) -> Kernel:
    k = TileBuilder()
    k.buffer("x", rows * n)
    k.buffer("y", rows * n, "out")
    k.scratch("e", n)
    row = k.grid("row", rows)
    start = k.literal(-np.inf)
    tile = {"unroll": unroll, "vector": vector}
    with k.loop("j", n, carry=[(start, ["self"])], **tile) as j:
        j.next.append(k.map("Maximum", j.inner[0], k.load("x", row * n + j.axis)))
    largest = k.reduce("Maximum", j.results[0], j.axis)
    minus = k.map("Mul", largest, k.literal(-1.0))
    with k.loop("j2", n, carry=[(k.literal(0.0), ["self"])], **tile) as j:
        e = k.map("Exp", k.map("Add", k.load("x", row * n + j.axis), minus))
        k.store("e", j.axis, e)
        j.next.append(k.map("Add", j.inner[0], e))
    scale = k.map("Recip", k.reduce("Add", j.results[0], j.axis))
    with k.loop("j3", n, **tile) as j:
        k.store("y", row * n + j.axis, k.map("Mul", k.load("e", j.axis), scale))
    return k.kernel()


@pytest.mark.parametrize("n", [1, 16, 63, 64, 200])
def test_softmax_with_a_scratch_row(n: int) -> None:
    x = rng().standard_normal((5, n), np.float32)
    # exp by a polynomial, and a sum of it: 8 ulp
    out = run_all(softmax(5, n), {"x": x, "y": np.zeros_like(x)}, rtol=1e-6)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    close_each(out["y"], e / e.sum(1, keepdims=True), ulp=16)


def gemm(
    m: int | None, n: int, kk: int, *, block: int = 32, rows: int = 8, unroll: int = 2,
    vector: int = 16, dtype: str = "f32",
) -> Kernel:  # fmt: skip
    """C = A @ B: grid over row blocks and strips of B, each strip packed to scratch."""
    k = TileBuilder()
    size = k.param("m") if m is None else m
    width = unroll * vector
    k.buffer("a", size * kk, dtype=dtype)
    k.buffer("b", kk * n, dtype=dtype)
    k.buffer("c", size * n, "out", dtype)
    k.scratch("strip", kk * width, dtype)
    mb = k.grid("mb", ceil_div(size, block))
    nb = k.grid("nb", -(-n // width))
    left = minimum(n - nb * width, width)
    zero = k.literal(0, dtype)
    with k.loop("pk", kk) as p, k.loop("pn", width, unroll=unroll, vector=vector) as q:
        value = k.load("b", p.axis * n + nb * width + q.axis, nb * width + q.axis < n)
        k.store("strip", p.axis * width + q.axis, value)
    stop = minimum(mb * block + block, size)
    rows_loop = k.loop("i", stop, start=mb * block, extent=size, unroll=rows)
    with rows_loop as i, k.loop("j", left, extent=width, unroll=unroll, vector=vector) as j:
        with k.loop("p", kk, carry=[(zero, [i.axis, j.axis])]) as p:
            a = k.load("a", i.axis * kk + p.axis)
            b = k.load("strip", p.axis * width + j.axis)
            p.next.append(k.contract(p.inner[0], a, b))
        k.store("c", i.axis * n + nb * width + j.axis, p.results[0])
    return k.kernel()


@pytest.mark.parametrize(("m", "n", "kk"), [(1, 1, 1), (8, 32, 5), (33, 71, 9), (16, 48, 0)])
@pytest.mark.parametrize("dtype", long_but(["f32", "f64", "i32"], ("f32", "i32")))
def test_contraction_tile_with_a_packed_strip(m: int, n: int, kk: int, dtype: str) -> None:
    for static in (True, False):
        kernel = gemm(m if static else None, n, kk, dtype=dtype, rows=4, block=16)
        real = kernel.buffers[0].dtype.numpy
        a = drawn_as(rng().standard_normal((m, kk)) * 9, real)
        b = drawn_as(rng().standard_normal((kk, n)) * 9, real)
        out = run_all(kernel, {"a": a, "b": b, "c": np.zeros((m, n), real)}, {"m": m})
        close(out["c"], a @ b)


def test_convolution_window_with_guards() -> None:
    """y[o, w] = sum over c, r of x[c, w + r - 1] * f[o, c, r], padded by one."""
    o, c, w, r = 5, 3, 37, 3
    k = TileBuilder()
    k.buffer("x", c * w)
    k.buffer("f", o * c * r)
    k.buffer("y", o * w, "out")
    with k.loop("o", o, unroll=4) as out, k.loop("w", w, unroll=2, vector=8) as pos:
        with k.loop("c", c, carry=[(k.literal(0.0), [out.axis, pos.axis])]) as ch:
            with k.loop("r", r, carry=[(ch.inner[0], [out.axis, pos.axis])]) as tap:
                at = pos.axis + tap.axis - 1
                x = k.load("x", ch.axis * w + at, (at >= 0) & (at < w))
                f = k.load("f", (out.axis * c + ch.axis) * r + tap.axis)
                tap.next.append(k.contract(tap.inner[0], x, f))
            ch.next.append(tap.results[0])
        k.store("y", out.axis * w + pos.axis, ch.results[0])
    x, f = rng().standard_normal((c, w)), rng().standard_normal((o, c, r))
    arrays = {"x": x.astype(np.float32), "f": f.astype(np.float32)}
    out_arrays = run_all(k.kernel(), {**arrays, "y": np.zeros((o, w), np.float32)})
    padded = np.pad(x, ((0, 0), (1, 1)))
    windows = np.stack([padded[:, t : t + w] for t in range(r)], -1)
    close(out_arrays["y"], np.einsum("cwr,ocr->ow", windows, f))


def test_masked_lanes_of_a_carried_vector_axis() -> None:
    """A running maximum and its count, carried together, lanes of the loop's own axis."""
    n = 75
    k = TileBuilder()
    k.buffer("x", n, dtype="i32")
    k.buffer("best", 1, "out", "i32")
    k.buffer("count", 1, "out", "i64")
    init = [(k.literal(-1000, "i32"), ["self"]), (k.literal(0, "i64"), ["self"])]
    with k.loop("i", n, unroll=2, vector=16, carry=init) as i:
        x = k.load("x", i.axis)
        i.next.append(k.map("Maximum", i.inner[0], x))
        i.next.append(k.map("Add", i.inner[1], k.literal(1, "i64")))
    k.store("best", 0, k.reduce("Maximum", i.results[0], i.axis))
    k.store("count", 0, k.reduce("Add", i.results[1], i.axis))
    arrays = {"x": rng().integers(-900, -2, n, np.int32), "best": np.zeros(1, np.int32)}
    out = run_all(k.kernel(), {**arrays, "count": np.zeros(1, np.int64)})
    assert out["count"][0] == n
    assert out["best"][0] == arrays["x"].max()


@pytest.mark.parametrize("dtype", long_but(["f32", "f64", "i32", "u8"], ("f32", "u8")))
@pytest.mark.parametrize("op", mostly_long(["Add", "Maximum", "Mul"], 2))
def test_prefixes_of_rows(op: str, dtype: str) -> None:
    """Of a loaded value, and of one that all positions share."""
    function: np.ufunc = {"Add": np.add, "Maximum": np.maximum, "Mul": np.multiply}[op]
    for vector in (2, 8, 16):
        k = TileBuilder()
        rows, n = k.param("rows"), k.param("n")
        for name, role in (("x", "in"), ("y", "out"), ("z", "out")):
            k.buffer(name, rows * n, role, dtype)
        row = k.grid("row", rows)
        lowest = k.buffers[0].dtype.lowest
        init = k.literal(lowest if op == "Maximum" else 1 if op == "Mul" else 0, dtype)
        one = k.literal(1, dtype)
        with k.loop("j", n, vector=vector, carry=[(init, []), (init, [])]) as j:
            own, total = k.prefix(op, k.load("x", row * n + j.axis), j.axis)
            shared, every = k.prefix(op, one, j.axis)
            j.next += [k.map(op, j.inner[0], total), k.map(op, j.inner[1], every)]
            k.store("y", row * n + j.axis, k.map(op, j.inner[0], own))
            k.store("z", row * n + j.axis, k.map(op, j.inner[1], shared))
        kernel = k.kernel()
        real = np.dtype(kernel.buffers[0].dtype.numpy)
        for length in (1, 5, 16, 67, 200):
            # Small integers and powers of two: sums and products are exact in any grouping.
            by_powers = op == "Mul" and real.kind == "f"
            x = rng().choice([0.5, 1, 2] if by_powers else [*range(8)], (2, length)).astype(real)
            y = np.zeros((2, length), real)
            out = run_all(kernel, {"x": x, "y": y, "z": y}, {"rows": 2, "n": length})
            np.testing.assert_array_equal(out["y"], function.accumulate(x, axis=1, dtype=real))
            ones = np.ones_like(x)
            np.testing.assert_array_equal(out["z"], function.accumulate(ones, axis=1, dtype=real))


def test_prefixes_of_special_values() -> None:
    """NaN from the first on, +0 above -0, and nothing beyond the row."""
    k = TileBuilder()
    k.buffer("x", 21)
    k.buffer("y", 21, "out")
    with k.loop("j", 21, vector=16, carry=[(k.literal(-np.inf), [])]) as j:
        own, total = k.prefix("Maximum", k.load("x", j.axis), j.axis)
        j.next.append(k.map("Maximum", j.inner[0], total))
        k.store("y", j.axis, k.map("Maximum", j.inner[0], own))
    x = np.full(21, -np.inf, np.float32)
    x[3], x[5], x[6], x[18] = -2, -0.0, 0.0, np.nan
    out = run_all(k.kernel(), {"x": x, "y": np.zeros(21, np.float32)})["y"]
    expected = [-np.inf] * 3 + [-2] * 2 + [0] * 13 + [np.nan] * 3
    np.testing.assert_array_equal(out, expected)
    assert np.signbit(out[5])
    assert not np.signbit(out[6])

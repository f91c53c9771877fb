"""Elementwise kernels: verified, interpreted, rendered and run."""

from __future__ import annotations

import numpy as np
import pytest

from luminal.backends.cpu.target import detect
from luminal.codegen.llvm import render
from luminal.kernel.tile_ir import Kernel
from luminal.shape.expression import ceil_div, minimum
from tests.backends.cpu.tile_builder import TileBuilder, run_all

SIZES = (0, 1, 15, 16, 17, 63, 64, 65, 1000)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def chain(n: int | None, unroll: int = 4, vector: int = 16, chunk: int = 256) -> Kernel:
    """y = x * x + 3, in chunks."""
    k = TileBuilder()
    size = k.param("n") if n is None else n
    k.buffer("x", size)
    k.buffer("y", size, "out")
    c = k.grid("c", ceil_div(size, chunk))
    stop = minimum(c * chunk + chunk, size)
    start = c * chunk
    with k.loop("i", stop, start=start, extent=size, unroll=unroll, vector=vector) as i:
        x = k.load("x", i.axis)
        k.store("y", i.axis, k.map("Add", k.map("Mul", x, x), k.literal(3.0)))
    return k.kernel()


@pytest.mark.parametrize("n", SIZES)
def test_ragged_lengths(n: int) -> None:
    x = rng().standard_normal(n, np.float32)
    for static in (None, n):
        out = run_all(chain(static), {"x": x, "y": np.zeros(n, np.float32)}, {"n": n})
        np.testing.assert_array_equal(out["y"], x * x + np.float32(3))


@pytest.mark.parametrize(("unroll", "vector"), [(1, 1), (3, 1), (1, 8), (2, 4), (5, 2)])
def test_tile_shapes(unroll: int, vector: int) -> None:
    x = rng().standard_normal(77, np.float32)
    kernel = chain(None, unroll, vector, 40)
    out = run_all(kernel, {"x": x, "y": np.zeros(77, np.float32)}, {"n": 77})
    np.testing.assert_array_equal(out["y"], x * x + np.float32(3))


@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 40), (8, 32), (17, 70)])
def test_transposed_operand_and_broadcast(m: int, n: int) -> None:
    """y[i, j] = a[j, i] + r[j] * c[i]: a gather, a row and a column."""
    k = TileBuilder()
    for name, size in (("a", m * n), ("r", n), ("c", m)):
        k.buffer(name, size)
    k.buffer("y", m * n, "out")
    with k.loop("i", m, unroll=4) as i, k.loop("j", n, unroll=2, vector=16) as j:
        a = k.load("a", j.axis * m + i.axis)
        product = k.map("Mul", k.load("r", j.axis), k.load("c", i.axis))
        k.store("y", i.axis * n + j.axis, k.map("Add", a, product))
    a = rng().standard_normal((n, m), np.float32)
    r, c = rng().standard_normal(n, np.float32), rng().standard_normal(m, np.float32)
    out = run_all(k.kernel(), {"a": a, "r": r, "c": c, "y": np.zeros((m, n), np.float32)})
    np.testing.assert_array_equal(out["y"], a.T + r * c[:, None])


def test_strides_known_at_run_time() -> None:
    """y[i, j] = x[j, i] with both extents parameters."""
    k = TileBuilder()
    m, n = k.param("m"), k.param("n")
    k.buffer("x", m * n)
    k.buffer("y", m * n, "out")
    row = k.grid("row", m)
    with k.loop("j", n, unroll=2, vector=8) as j:
        k.store("y", row * n + j.axis, k.load("x", j.axis * m + row))
    x = rng().standard_normal((21, 9), np.float32)
    out = run_all(k.kernel(), {"x": x, "y": np.zeros((9, 21), np.float32)}, {"m": 9, "n": 21})
    np.testing.assert_array_equal(out["y"], x.T)


@pytest.mark.parametrize("n", SIZES)
def test_strided_and_reversed_stores(n: int) -> None:
    """even[2i] = x[i]; back[n-1-i] = x[i]."""
    k = TileBuilder()
    k.buffer("x", n)
    k.buffer("even", 2 * n, "out")
    k.buffer("back", n, "out")
    with k.loop("i", n, unroll=2, vector=16) as i:
        x = k.load("x", i.axis)
        k.store("even", i.axis * 2, x)
        k.store("back", n - 1 - i.axis, x)
    x = rng().standard_normal(n, np.float32)
    arrays = {"x": x, "even": np.zeros(2 * n, np.float32), "back": np.zeros(n, np.float32)}
    out = run_all(k.kernel(), arrays)
    np.testing.assert_array_equal(out["even"][::2], x)
    np.testing.assert_array_equal(out["back"], x[::-1])


def test_digits_of_a_vector_axis() -> None:
    """Merged dimensions: y[i] = x[i // 32 * 40 + i % 32] stays contiguous within a vector."""
    k = TileBuilder()
    k.buffer("x", 40 * 8)
    k.buffer("y", 32 * 8, "out")
    with k.loop("i", 256, unroll=2, vector=16) as i:
        k.store("y", i.axis, k.load("x", i.axis // 32 * 40 + i.axis % 32))
    assert "gather" not in render(k.kernel(), detect())
    x = rng().standard_normal((8, 40), np.float32)
    out = run_all(k.kernel(), {"x": x, "y": np.zeros(256, np.float32)})
    np.testing.assert_array_equal(out["y"].reshape(8, 32), x[:, :32])


def test_awkward_digits() -> None:
    """y[i] = x[(5 i + 3) // 7 % 11], by vector arithmetic."""
    k = TileBuilder()
    k.buffer("x", 11)
    k.buffer("y", 100, "out")
    with k.loop("i", 100, unroll=2, vector=16) as i:
        k.store("y", i.axis, k.load("x", (i.axis * 5 + 3) // 7 % 11))
    x = rng().standard_normal(11, np.float32)
    out = run_all(k.kernel(), {"x": x, "y": np.zeros(100, np.float32)})
    np.testing.assert_array_equal(out["y"], x[(5 * np.arange(100) + 3) // 7 % 11])


@pytest.mark.parametrize("n", [1, 16, 40])
def test_guards(n: int) -> None:
    """Pads, a concat, a diagonal and a guard that all lanes share."""
    k = TileBuilder()
    flag = k.param("flag", 0, 1)
    k.buffer("x", n)
    k.buffer("z", n)
    k.buffer("y", 2 * n + 8, "inout")
    k.buffer("eye", n * n, "out")
    k.buffer("one", 1)
    with k.loop("i", 2 * n + 8, unroll=2, vector=16) as i:
        low = k.load("x", i.axis - 3, (i.axis >= 3) & (i.axis < n + 3))
        high = k.load("z", i.axis - n - 5, (i.axis >= n + 5) & (i.axis < 2 * n + 5))
        both = k.map("Add", low, high)
        shared = k.load("one", 0, flag.eq(1))
        lane = k.load("one", 0, i.axis.eq(7))
        total = k.map("Add", k.map("Add", both, shared), lane)
        k.store("y", i.axis, total, (i.axis % 2).eq(0) | (i.axis > n))
    with k.loop("r", n, unroll=3) as r, k.loop("c", n, vector=16) as c:
        k.store("eye", r.axis * n + c.axis, k.load("one", 0, r.axis.eq(c.axis)))
    x, z = rng().standard_normal(n, np.float32), rng().standard_normal(n, np.float32)
    one = np.ones(1, np.float32)
    for flag_value in (0, 1):
        arrays = {"x": x, "z": z, "y": np.full(2 * n + 8, 9, np.float32), "one": one}
        arrays["eye"] = np.zeros((n, n), np.float32)
        out = run_all(k.kernel(), arrays, {"flag": flag_value})
        expected = np.zeros(2 * n + 8, np.float32)
        expected[3 : n + 3] += x
        expected[n + 5 : 2 * n + 5] += z
        expected += flag_value
        expected[7] += 1
        odd = (np.arange(2 * n + 8) % 2 == 1) & (np.arange(2 * n + 8) <= n)
        np.testing.assert_array_equal(out["y"], np.where(odd, 9, expected))
        np.testing.assert_array_equal(out["eye"], np.eye(n))


def test_index_select_and_dtypes() -> None:
    """Every dtype passes through memory; Index gives i64; conditions are bool in memory."""
    n = 37
    k = TileBuilder()
    short = ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f64"]
    for name in short:
        k.buffer(f"in_{name}", n, dtype=name)
        k.buffer(f"out_{name}", n, "out", name)
        k.buffer(f"f_{name}", n, "out")
        k.buffer(f"b_{name}", n, "out", name)
    k.buffer("pos", n, "out", "i64")
    with k.loop("i", n, unroll=2, vector=8) as i:
        at = k.index(i.axis * 3 - 4)
        k.store("pos", i.axis, at)
        flag = k.map("LessThan", at, k.literal(20, "i64"))
        for name in short:
            value = k.load(f"in_{name}", i.axis, i.axis.ne(5))
            other = k.load(f"in_{name}", n - 1 - i.axis)
            k.store(f"out_{name}", i.axis, k.map("Select", flag, value, other))
            wide = k.map("Cast", value, dtype="f32")
            k.store(f"f_{name}", i.axis, wide)
            k.store(f"b_{name}", n - 1 - i.axis, k.map("Cast", wide, dtype=name), i.axis < 30)
    arrays: dict[str, np.ndarray] = {"pos": np.zeros(n, np.int64)}
    for buffer in k.buffers:
        raw = rng().integers(0, 100, n)
        if buffer.name.startswith("in_"):
            arrays[buffer.name] = (raw > 50 if buffer.dtype.kind == "bool" else raw).astype(
                buffer.dtype.numpy
            )
        else:
            arrays[buffer.name] = np.zeros(n, buffer.dtype.numpy)
    out = run_all(k.kernel(), arrays)
    np.testing.assert_array_equal(out["pos"], np.arange(n) * 3 - 4)
    np.testing.assert_array_equal(out["out_bf16"][8:], arrays["in_bf16"][::-1][8:])


def test_functions() -> None:
    n = 100
    k = TileBuilder()
    k.buffer("x", n)
    k.buffer("y", n, "out")
    with k.loop("i", n, unroll=2, vector=16) as i:
        value = k.load("x", i.axis)
        for op in ("Sin", "Exp", "Sqrt", "Log", "Exp2"):
            value = k.map(op, value)
        k.store("y", i.axis, value)
    x = rng().standard_normal(n, np.float32)
    # five approximated functions in a row, each within 2 ulp
    run_all(k.kernel(), {"x": x, "y": np.zeros(n, np.float32)}, rtol=2e-6)

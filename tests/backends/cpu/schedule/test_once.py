"""What is packed once for chunks that follow each other."""

from __future__ import annotations

import ctypes
from itertools import combinations, pairwise

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu.target import detect
from luminal.base import config, dtypes
from luminal.base.errors import VerifyError
from luminal.kernel.tile_ir import Kernel, Once
from luminal.kernel.tile_verify import verify
from luminal.shape.expression import Expression
from tests.backends.cpu.tile_builder import TileBuilder, native, run_all
from tests.long_share import mostly_long

ROWS, COLUMNS, WIDTH = 3, 4, 5


def copied(outer: int = 1, to: str = "s", at: str = "row", around: int = 1) -> Kernel:
    """y[row, column] = x[row] + column, by way of a copy of the row in scratch."""
    k = TileBuilder()
    k.buffer("x", ROWS * WIDTH)
    k.buffer("y", ROWS * COLUMNS * WIDTH, "out")
    k.scratch("s", WIDTH)
    axes = {"row": k.grid("row", ROWS), "column": k.grid("column", COLUMNS)}
    k.bodies.append([])
    with k.loop("i", WIDTH) as i:
        k.store(to, i.axis, k.load("x", axes[at] * WIDTH + i.axis))
    once = Once(outer, tuple(k.bodies.pop()))
    if around == 1:
        k.emit(once)
    else:
        with k.loop("again", around):
            k.emit(once)
    column = k.map("Cast", k.index(axes["column"]), dtype="f32")
    point: Expression = axes["row"] * COLUMNS + axes["column"]
    with k.loop("j", WIDTH, vector=4) as j:
        k.store("y", point * WIDTH + j.axis, k.map("Add", k.load("s", j.axis), column))
    return k.kernel()


def expected(x: np.ndarray) -> np.ndarray:
    return x.reshape(ROWS, 1, WIDTH) + np.arange(COLUMNS, dtype=np.float32)[:, None]


def numbers(n: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(n, np.float32)


def test_all_meanings_agree() -> None:
    x = numbers(ROWS * WIDTH)
    y = np.zeros((ROWS, COLUMNS, WIDTH), np.float32)
    found = run_all(copied(), {"x": x, "y": y})
    np.testing.assert_array_equal(found["y"], expected(x))


@pytest.mark.parametrize("cuts", [*combinations(range(1, ROWS * COLUMNS), 2), (1, 2, 6, 7)])
def test_a_worker_may_begin_anywhere(cuts: tuple[int, ...]) -> None:
    """Each piece of the grid finds other scratch than the piece before it has left."""
    code, x = native(copied(), detect()), numbers(ROWS * WIDTH)
    y, scratch = np.zeros((ROWS, COLUMNS, WIDTH), np.float32), np.zeros(256, np.uint8)
    slots = np.array([x.ctypes.data, y.ctypes.data], np.int64)
    for begin, end in pairwise((0, *cuts, ROWS * COLUMNS)):
        scratch[...] = 0xA5
        at = -(-scratch.ctypes.data // 64) * 64
        code.function(slots.ctypes.data, ctypes.c_void_p(None), begin, end, at)
    np.testing.assert_array_equal(y, expected(x))


def test_it_runs_once_for_a_run_of_chunks() -> None:
    """Chunks that change what was copied do not see it, nor do those after them."""
    k = TileBuilder()
    k.buffer("x", ROWS, "inout")
    k.scratch("s", 1)
    row, _ = k.grid("row", ROWS), k.grid("column", COLUMNS)
    k.bodies.append([])
    k.store("s", 0, k.load("x", row))
    k.emit(Once(1, tuple(k.bodies.pop())))
    k.store("x", row, k.map("Add", k.load("s", 0), k.literal(1.0)))
    code, x = native(k.kernel(), detect()), np.zeros(ROWS, np.float32)
    slots, scratch = np.array([x.ctypes.data], np.int64), np.zeros(256, np.uint8)
    at = -(-scratch.ctypes.data // 64) * 64
    for begin, end in ((0, 8), (8, 10), (10, 11), (11, 12)):
        code.function(slots.ctypes.data, ctypes.c_void_p(None), begin, end, at)
    assert x.tolist() == [1, 1, 3]


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (copied(at="column"), "column in column \\* 5 \\+ i is not bound here"),
        (copied(to="y"), "y is written in chunks that do it only; write scratch"),
        (copied(around=2), "it stands in a loop or a branch; put it outside"),
    ],
    ids=["inner-axis", "global", "in-a-loop"],
)
def test_what_scratch_may_not_keep_is_refused(kernel: Kernel, text: str) -> None:
    with pytest.raises(VerifyError, match=text):
        verify(kernel)


@pytest.mark.parametrize("threads", mostly_long([2, 1], 1))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_whose_rows_are_cut(threads: int, dtype: str) -> None:
    """Rows enough for several chunks of each strip, which lies badly in the cache."""
    m, k, n = 1100, 1024, 1024
    cx = lm.Graph()
    (cx.tensor((m, k), dtype, name="a") @ cx.tensor((k, n), dtype, name="b")).output("y")
    draw, kind = np.random.default_rng(5).integers, dtypes.dtype_of(dtype).numpy
    a, b = (draw(-4, 5, shape).astype(np.float64) for shape in ((m, k), (k, n)))  # exact sums
    with config.override(LUMINAL_THREADS=threads):
        executable = lm.compile(cx)
        for _ in range(3):
            found = executable({"a": a.astype(kind), "b": b.astype(kind)})["y"]
            np.testing.assert_array_equal(found, (a @ b).astype(kind))

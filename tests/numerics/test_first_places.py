"""Where the greatest and the least are first, in axes long enough to be cut: against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import luminal as lm
from tests.close import close_each
from tests.long_share import long_but, mostly_long

Array = np.ndarray[Any, Any]
SHAPES = ((70_001,), (1 << 17,), (263, 401), (2, 70_001), (5, 7, 3001), (3, 100_000), (300_007,))
DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64")


def lowest(dtype: str) -> Any:
    return -np.inf if dtype.startswith("float") else np.iinfo(dtype).min


def samples(shape: tuple[int, ...], dtype: str) -> Iterator[tuple[str, Array]]:
    """Arrays by what is special about them."""
    rng = np.random.default_rng([*shape, DTYPES.index(dtype)])
    n = int(np.prod(shape))
    values = rng.standard_normal(n) * 40
    yield "any", values.astype("int64").astype(dtype)
    yield "few values", (values.astype("int64") % 3).astype(dtype)
    yield "one value", np.full(n, 3, dtype)
    yield "nothing greater than the least", np.full(n, lowest(dtype), dtype)
    for first in (0, 1, n // 64 - 1, n // 64, n // 64 + 1, n - n // 64, n - 2, n - 1):
        one = np.zeros(n, dtype)
        one[first] = 7
        yield f"greatest at {first}", one
        if dtype.startswith("float"):
            one[rng.integers(0, n)] = np.nan
            one[first] = np.nan
            yield f"a NaN at {first}", one.copy()
            one[:] = -np.inf
            one[first] = -np.nan
            yield f"one -NaN at {first}", one
    if dtype.startswith("float"):
        yield "zeros", np.where(rng.random(n) < 0.5, 0.0, -0.0).astype(dtype)
        yield "NaN", np.full(n, np.nan, dtype)
        yield "last NaN", np.append(values[1:], np.nan).astype(dtype)


@pytest.mark.parametrize("dtype", long_but(DTYPES, ("float32", "float16", "int8")))
@pytest.mark.parametrize("shape", mostly_long(SHAPES, 3), ids=str)
def test_places_are_those_of_numpy(shape: tuple[int, ...], dtype: str) -> None:
    cx = lm.Graph()
    x = cx.tensor(shape, dtype, "x")
    axes = [None, *range(len(shape))]
    for axis in axes:
        cx.output(x.argmax(axis), f"argmax {axis}")
        cx.output(x.argmin(axis), f"argmin {axis}")
    exe = lm.compile(cx)
    for name, flat in samples(shape, dtype):
        given = flat.reshape(shape)
        found = exe(x=given)
        for axis in axes:
            for function in (np.argmax, np.argmin):
                key = f"{function.__name__} {axis}"
                message = f"{key}: {name}"
                np.testing.assert_array_equal(found[key], function(given, axis), message)


def test_of_what_is_computed_of_weights_and_rows() -> None:
    rng = np.random.default_rng(1)
    x, w, bias = (rng.standard_normal(s).astype(np.float32) for s in ((3, 90_000), 90_000, (3, 1)))
    cx = lm.Graph()
    given, scale, row = cx.tensor((3, 90_000), name="x"), cx.weight((90_000,), name="w"), bias
    scores = given * scale + row
    greatest, place = scores.max(-1)
    greatest.output("greatest")
    place.output("place")
    (scores - scores.mean()).argmax().output("flat")
    found = lm.compile(cx)({"x": x, "w": w})
    wanted = x * w + bias
    np.testing.assert_array_equal(found["place"], wanted.argmax(-1))
    close_each(found["greatest"], wanted.max(-1))
    assert wanted.reshape(-1)[int(found["flat"])] == wanted.max()


@pytest.mark.parametrize("slopes", [(-1, -1), (-1, 1), (1, 1), (-1, -400), (-401, -1), (-2, 0)])
def test_of_places_in_any_order(slopes: tuple[int, int]) -> None:
    cx = lm.Graph()
    x = cx.tensor((300, 400), "int8", "x")
    row, column = (cx.arange(n, dtype="int32") for n in (300, 400))
    at = row[:, None] * slopes[0] + column * slopes[1] + 400_000
    lm.where(x == x.amax((0, 1), keepdim=True), at, 0).amax().output("y")
    exe, rng = lm.compile(cx), np.random.default_rng(3)
    for _ in range(20):
        values = np.zeros((300, 400), np.int8)
        values[rng.integers(0, 300, 4), rng.integers(0, 400, 4)] = 1
        rows, columns = np.nonzero(values)
        wanted = (rows * slopes[0] + columns * slopes[1]).max() + 400_000
        assert exe(x=values)["y"] == wanted


@pytest.mark.parametrize("n", [1, 2, 65_536, 65_537, 100_003])
def test_of_dims_that_runs_bind(n: int) -> None:
    cx = lm.Graph()
    s = cx.dim("s", 1, 1 << 20)
    x = cx.tensor((s,), name="x")
    x.argmax().output("most")
    x.argmin().output("least")
    values = np.random.default_rng(n).integers(-50, 50, n).astype(np.float32)
    found = lm.compile(cx)(x=values)
    assert (found["most"], found["least"]) == (values.argmax(), values.argmin())


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_all_is_read_once_and_a_chunk_again(dtype: str) -> None:
    cx = lm.Graph()
    cx.tensor((1_000_003,), dtype, "x").argmax().output("y")
    first, second = lm.compile(cx, backend="cpu").report().kernels
    assert first.chunks > 16
    assert second.chunks == 1
    assert second.flops < first.flops

"""Random scans and sorts, of rows that lie in memory in every way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import luminal as lm
from luminal.base.dtypes import DType, dtype_of
from luminal.hlir.graph import Graph

Array = np.ndarray[Any, Any]
Compiled = Callable[[Graph], Callable[[dict[str, Any]], Any]]
EDGES = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65)
WHOLE = ("int32", "uint8", "float32", "int64", "bfloat16")


def drawn_shape(rng: np.random.Generator, most: int) -> tuple[tuple[int, ...], int]:
    """A shape of at most so many elements, and the axis of its rows: few or many, short or long,
    anywhere among dims of 1.
    """
    while True:
        count = int(rng.integers(1, 4))
        shape = [int(rng.choice((*EDGES, most))) for _ in range(count)]
        axis = int(rng.integers(count))
        shape[axis] += int(rng.integers(0, 3)) * int(rng.choice((0, 1, 16)))
        if np.prod(shape) <= most:
            for _ in range(int(rng.integers(0, 3))):
                at = int(rng.integers(len(shape) + 1))
                shape.insert(at, 1)
                axis += at <= axis
            return tuple(shape), axis


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Small whole numbers, whose sums are exact in any order."""
    return rng.integers(0, 2 if dtype.size < 4 else 9, shape).astype(dtype.numpy)


def check_scan(compiled: Compiled, seed: int, most: int = 600) -> None:
    """A running sum, product and maximum of one drawn case, exactly NumPy's."""
    rng = np.random.default_rng(seed)
    shape, axis = drawn_shape(rng, most)
    dtype = dtype_of(str(rng.choice(WHOLE)))
    x = numbers(rng, shape, dtype)
    is_dim = rng.random() < 0.3
    cx = lm.Graph()
    extents: list[Any] = list(shape)
    if is_dim:
        extents[axis] = cx.dim("n", 0, 2 * shape[axis])
    t = cx.tensor(tuple(extents), name="x", dtype=dtype)
    t.cumsum(axis).output("sums")
    t.flip(axis).cumsum(axis).output("reversed")
    t.cummax(axis)[0].output("greatest")
    (t > 0).cast("int32").cumprod(axis).output("products")
    result = compiled(cx.graph())({"x": x})
    wide = x.astype(np.float64)
    where = f"seed {seed}: {dtype}{shape} along {axis}"
    for name, expected in {
        "sums": wide.cumsum(axis),
        "reversed": np.flip(wide, axis).cumsum(axis),
        "greatest": np.maximum.accumulate(wide, axis),
        "products": (wide > 0).cumprod(axis),
    }.items():
        sums = np.asarray(result[name]).astype(np.float64)
        rounded = expected.astype(result[name].dtype).astype(np.float64)
        np.testing.assert_array_equal(sums, rounded, f"{name} of {where}")

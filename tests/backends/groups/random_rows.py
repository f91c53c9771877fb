"""Random scans and sorts, of rows that lie in memory in every way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import luminal as lm
from luminal.backends import device_costs
from luminal.base.costs import Costs
from luminal.base.dtypes import DType, dtype_of
from luminal.hlir.graph import Graph
from luminal.schedule.vectors.vector_target import VectorTarget

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


# --- sorts

BLOCK = 8
KEYS = ("int32", "float32", "int64", "uint8", "float16", "bfloat16", "int16", "uint64", "bool")


def small_blocks(target: VectorTarget) -> Costs:
    """The costs of a device that sorts rows of more than 32 keys of 4 bytes in blocks of 8."""
    costs = device_costs.gpu(target)
    return replace(costs, shares=replace(costs.shares, sorted=8 * BLOCK))


def keys(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Many ties, or few; of floats infinities, both zeros and NaN."""
    most = min(2 ** min(dtype.bits - 1, 30), int(rng.choice((2, 9, 1 << 30))))
    x = rng.integers(0, 2 if dtype.short == "bool" else most, shape).astype(dtype.numpy)
    if dtype.is_float:
        for k, special in enumerate((np.nan, -0.0, np.inf, -np.inf, 0.0)):
            x.flat[k :: 5 + int(rng.integers(30))] = special
    elif dtype.is_signed:
        x.flat[::3] = -x.flat[::3]
    return x


def check_sort(compiled: Compiled, seed: int, most: int = 70) -> None:
    """A stable sort of one drawn case: NumPy's order, and the very bits of the keys."""
    rng = np.random.default_rng(seed)
    shape, axis = drawn_shape(rng, most)
    if rng.random() < 0.7:  # a long row
        edge = BLOCK * int(rng.choice((4, 5, 8, 15, 16, 64)))
        length = min(edge, most) + int(rng.integers(-1, 2))
        shape = tuple(length if k == axis else min(n, 2) for k, n in enumerate(shape))
    dtype = dtype_of(str(rng.choice(KEYS)))
    lengths = [shape[axis]]
    cx = lm.Graph()
    extents: list[Any] = list(shape)
    if rng.random() < 0.3:
        extents[axis] = cx.dim("n", 0, shape[axis] + 30)
        lengths += [0, int(rng.integers(1, BLOCK + 2)), shape[axis] + 30]
    t = cx.tensor(tuple(extents), name="x", dtype=dtype)
    use = int(rng.integers(3))  # both results, or one
    for k, (name, result) in enumerate(zip(("values", "order"), t.sort(axis), strict=True)):
        if use in (k, 2):
            result.output(name)
    exe = compiled(cx.graph())
    for length in lengths:
        x = keys(rng, (*shape[:axis], length, *shape[axis + 1 :]), dtype)
        result = exe({"x": x})
        wide = x if dtype.is_int or dtype.short == "bool" else x.astype(np.float64)
        order = np.argsort(wide, axis, kind="stable")
        where = f"seed {seed}: {dtype}{x.shape} along {axis}"
        if "order" in result:
            np.testing.assert_array_equal(result["order"], order, where)
        if "values" in result:
            values = np.take_along_axis(x, order, axis)
            assert np.ascontiguousarray(result["values"]).tobytes() == values.tobytes(), where

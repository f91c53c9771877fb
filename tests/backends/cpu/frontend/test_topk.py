"""The k greatest and least of long dims, found in blocks: as the first of a stable sort."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import luminal as lm
from luminal.base import dtypes
from luminal.frontend.reduce import sorting
from luminal.hlir.substitute import all_nodes
from tests.long_share import long_but, long_rows, mostly_long

Array = np.ndarray[Any, Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = ("f4", "f8", "f2", BFLOAT16, "i1", "i4", "i8", "u1", "u8", "?")


def drawn(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Few distinct values, so many equal ones; floats with every special one."""
    rng = np.random.default_rng(3)
    if dtype.kind in "biu":
        low, high = (0, 2) if dtype.kind == "b" else (0 if dtype.kind == "u" else -100, 100)
        x = rng.integers(low, high, shape).astype(dtype)
        if dtype.kind != "b":
            x.flat[::97], x.flat[5::101] = np.iinfo(dtype).min, np.iinfo(dtype).max
        return x
    x = np.round(rng.standard_normal(shape) * 20).astype(dtype)
    for start, special in enumerate((np.nan, -0.0, np.inf, -np.inf)):
        x.flat[start::97] = special
    return x


def expected(x: Array, k: int, axis: int, largest: bool) -> Array:
    """The positions of a stable sort, NaN the greatest."""
    if x.dtype.kind in "biu":
        wide = x.astype(object)
        order = np.argsort(-wide if largest else wide, axis=axis, kind="stable")
    else:
        wide = np.moveaxis(x.astype(np.float64), axis, -1)
        sign, is_nan = (-1 if largest else 1), np.isnan(wide)
        order = np.lexsort((np.where(is_nan, 0, sign * wide), sign * is_nan), axis=-1)
        order = np.moveaxis(order, -1, axis)
    return np.take(order, np.arange(k), axis=axis)


def topk(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    cx = lm.Graph()
    given = cx.tensor(x.shape, dtypes.dtype_of(x.dtype), name="x")
    for name, result in zip(("values", "indices"), given.topk(k, axis, largest), strict=True):
        result.output(name)
    found = lm.compile(cx)({"x": x})
    return np.asarray(found["values"]), np.asarray(found["indices"])


def check(x: Array, k: int, axis: int) -> None:
    for largest in (True, False):
        values, indices = topk(x, k, axis, largest)
        wanted = expected(x, k, axis, largest)
        np.testing.assert_array_equal(indices, wanted)
        taken = np.take_along_axis(x, wanted, axis)
        assert np.ascontiguousarray(values).tobytes() == taken.tobytes()


@pytest.mark.parametrize("dtype", long_but(DTYPES, (BFLOAT16, "u1")), ids=str)
def test_of_any_dtype_the_first_of_equals(dtype: Any) -> None:
    check(drawn((3, 2999), np.dtype(dtype)), 7, 1)


SHAPES = [((4096,), 10, 0), ((2049,), 1, 0), ((2048,), 32, 0), ((2048,), 33, 0),
          ((2048,), 2048, 0), ((2500, 3), 5, 0), ((2, 2111, 3), 4, 1), ((70_001,), 64, 0),
          ((0, 4096), 3, 1)]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "k", "axis"), long_rows(SHAPES, [*SHAPES[1:4:2], SHAPES[6], SHAPES[8]])
)
def test_of_any_shape(shape: tuple[int, ...], k: int, axis: int) -> None:
    check(drawn(shape, np.dtype("f4")), k, axis)


@pytest.mark.parametrize("value", mostly_long([np.nan, np.inf, -np.inf, 0.0], 1))
def test_all_equal(value: float) -> None:
    check(np.full(4099, value, np.float32), 9, 0)


@pytest.mark.parametrize("dtype", mostly_long(["i1", "i4", "u8"], 1))
def test_all_equal_to_what_stands_beyond_the_end(dtype: str) -> None:
    for value in (np.iinfo(dtype).min, np.iinfo(dtype).max):
        check(np.full(4099, value, dtype), 9, 0)


def test_nothing_long_is_sorted() -> None:
    cx = lm.Graph()
    cx.tensor((50_257,), name="x").topk(50)[0].output("y")
    sorts = [node for node in all_nodes(cx.graph()) if node.op.name == "Sort"]
    assert max(node.types[0].shape[0].value for node in sorts) < 2000


def test_gradients_flow_to_where_values_come_from() -> None:
    x = np.random.default_rng(1).standard_normal(2600).astype(np.float32)
    cx = lm.Graph()
    given = cx.tensor(x.shape, name="x")
    values, _ = given.topk(5)
    (gradient,) = lm.grad((values * cx.arange(1, 6)).sum(), [given])
    gradient.output("g")
    wanted = np.zeros_like(x)
    wanted[np.argsort(-x)[:5]] = np.arange(1, 6)
    np.testing.assert_array_equal(lm.compile(cx)({"x": x})["g"], wanted)


TIED = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1.0, -2.0], np.float32)


@pytest.mark.parametrize(
    "dtype", mostly_long(["float32", "int8", "float16", "float64", "int32", "int64"], 2)
)
@pytest.mark.parametrize("k", [1, 2, 7, sorting.FEW, sorting.FEW + 1])
def test_few_are_those_of_a_stable_sort(k: int, dtype: str) -> None:
    """Found by passes or by a Sort: ties, NaN, infinities, the greatest and the least numbers."""
    rng = np.random.default_rng(k)
    x = rng.choice(TIED, (3, 20, 5)).astype(np.float32)
    if not dtype.startswith("float"):
        limits = np.iinfo(dtype)
        x = rng.choice(np.array([limits.min, limits.max, 0, -1, 1]), x.shape)
    x = x.astype(dtype)
    cx = lm.Graph()
    at = cx.tensor(x.shape, dtype, name="x")
    for largest in (True, False):
        values, indices = at.topk(k, 1, largest=largest)
        order = at.argsort(1, descending=largest)
        values.output(f"{largest} values")
        indices.output(f"{largest} indices")
        order.output(f"{largest} order")
    at.kthvalue(k, 1)[1].output("kth")
    found = lm.compile(cx)({"x": x})
    for largest in (True, False):
        wanted = found[f"{largest} order"][:, :k]
        np.testing.assert_array_equal(found[f"{largest} indices"], wanted)
        taken = np.take_along_axis(x, wanted, 1)
        assert found[f"{largest} values"].tobytes() == taken.tobytes()
    np.testing.assert_array_equal(found["kth"], found["False order"][:, k - 1])

"""The search's check: what is wrong is caught, what rounding alone changes is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.lower import lower
from luminal.backends.reference import evaluate
from luminal.search import oracle
from luminal.search.distance import distance
from luminal.search.operands import draw
from tests.close import close_each

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 100, 100


def product_of(dtype: Any) -> lm.Graph:
    cx = lm.Graph()
    x, w = cx.tensor((ROWS, 24), dtype, name="x"), cx.tensor((24, COLUMNS), dtype, name="w")
    (x @ w).output("y")
    return cx


def products() -> lm.Graph:
    return product_of(lm.float32)


def narrow_products() -> lm.Graph:
    return product_of(lm.bfloat16)


def integers() -> lm.Graph:
    cx = lm.Graph()
    (cx.tensor((ROWS, COLUMNS), lm.int32, name="x") * 3 // 2).output("y")
    return cx


def orders() -> lm.Graph:
    cx = lm.Graph()
    (cx.tensor((ROWS, COLUMNS), name="x") * 0.3).sort(-1)[1].output("y")
    return cx


def choices() -> lm.Graph:
    cx = lm.Graph()
    x = cx.tensor((ROWS, COLUMNS), name="x")
    lm.where(x.exp() < 1.5, x, -x).output("y")
    return cx


def roots() -> lm.Graph:
    """NaN where the input is negative: another spelling takes the maximum first."""
    cx = lm.Graph()
    cx.tensor((ROWS, COLUMNS), name="x").sqrt().max(-1)[0].output("y")
    return cx


def token() -> lm.Graph:
    """One integer: what greedy decoding takes."""
    cx = lm.Graph()
    (cx.tensor((COLUMNS,), name="x") * 0.3).argmax(-1).output("y")
    return cx


def nothing() -> lm.Graph:
    cx = lm.Graph()
    cx.tensor((0, COLUMNS), name="x").exp().output("y")
    return cx


def judged(build: Callable[[], lm.Graph], change: Callable[[Array], Array]) -> bool:
    """Is a candidate right whose results are those of the reference after a change?"""
    graph = build().graph()
    arrays = draw(graph, {}, {}, 0)
    fast = evaluate(graph, arrays.inputs)["y"]
    found = change(fast.copy())
    lowered = lower(graph)
    apart = distance(found, fast)
    sample = oracle.samples(lowered, arrays, 0, {"y": apart.worst})["y"]
    where = np.ix_(*sample.positions)
    return oracle.verdict(apart, sample, fast[where], found[where], sample.falls).right


def at(position: tuple[int, ...], value: Any) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        array[position] = value(array[position]) if callable(value) else value
        return array

    return change


def noise(size: float) -> Callable[[Array], Array]:
    """What another order of summation does."""

    def change(array: Array) -> Array:
        draws = np.random.default_rng(1).normal(size=array.shape)
        values = array.astype(np.float64)
        return np.asarray(values + draws * size * np.std(values)).astype(array.dtype)

    return change


def some_off_by_one(share: float) -> Callable[[Array], Array]:
    def change(array: Array) -> Array:
        return array + (np.random.default_rng(1).random(array.shape) < share).astype(array.dtype)

    return change


def swapped(count: int) -> Callable[[Array], Array]:
    """Neighbours that change places, as equal values may."""

    def change(array: Array) -> Array:
        rows = np.arange(count) * 7 % ROWS
        array[rows, 3], array[rows, 4] = array[rows, 4].copy(), array[rows, 3].copy()
        return array

    return change


WRONG = {
    "one element of 10,000": (products, at((41, 77), lambda v: v + 1)),
    "one element by a little": (products, at((41, 77), lambda v: v + 0.05)),
    "a corner": (products, at((-1, -1), 0)),
    "NaN": (products, at((13, 5), np.nan)),
    "infinity": (products, at((13, 5), np.inf)),
    "all NaN": (products, lambda y: y * np.nan),
    "a row that was not written": (products, at((57,), 0)),
    "rows in another order": (products, lambda y: np.roll(y, 1, 0)),
    "narrow: one element": (narrow_products, at((41, 77), lambda v: v + 4)),
    "narrow: NaN": (narrow_products, at((0, 99), np.nan)),
    "integers: one": (integers, at((41, 77), lambda v: v + 1)),
    "integers: 1 in 100": (integers, some_off_by_one(0.01)),
    "orders: 1 in 20": (orders, some_off_by_one(0.05)),
    "choices: many": (choices, lambda y: np.where(y < -0.5, -y, y)),
    "the token": (token, lambda y: y + 1),
}
RIGHT = {
    "the same": (products, lambda y: y),
    "other sums": (products, noise(1e-6)),
    "narrow: other roundings": (narrow_products, noise(4e-3)),
    "orders: ties": (orders, swapped(20)),
    "choices: one falls": (choices, at((3, 4), lambda v: -v)),
    "integers": (integers, lambda y: y),
    "a value in place of NaN": (roots, lambda y: np.ones_like(y)),
    "the token": (token, lambda y: y),
    "nothing": (nothing, lambda y: y),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    assert not judged(*WRONG[name])


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    assert judged(*RIGHT[name])


def test_a_few_rows_of_a_large_product_are_known() -> None:
    n = 3000
    cx = lm.Graph()
    x, w = cx.tensor((n, n), name="x"), cx.tensor((n, n), name="w")
    (x @ w).output("y")
    graph = cx.graph()
    arrays = draw(graph, {}, {}, 0)
    assert 2 * n**3 > oracle.MOST_OPERATIONS
    sample = oracle.samples(lower(graph), arrays, 0, {"y": (17, 2001)})["y"]
    rows, columns = sample.positions
    assert 17 in rows
    assert 2001 in columns
    expected = arrays.inputs["x"][rows].astype(np.float64) @ arrays.inputs["w"][:, columns]
    close_each(sample.values, expected)


def test_what_takes_too_long_leaves_time_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cx = lm.Graph()
    x = cx.tensor((64, 64), name="x")
    ((x @ x) @ (x @ x)).output("all of a product")
    x.sum(-1).output("rows")
    graph = cx.graph()
    arrays, lowered = draw(graph, {}, {}, 0), lower(graph)
    assert oracle.samples(lowered, arrays, 0, {}).keys() == {"all of a product", "rows"}
    monkeypatch.setattr(oracle, "MOST_OPERATIONS", 60_000)
    assert oracle.samples(lowered, arrays, 0, {}).keys() == {"rows"}
    monkeypatch.setattr(oracle, "MOST_OPERATIONS", 10)
    assert not oracle.samples(lowered, arrays, 0, {})

"""Scans of which only the last position is read: drawn ones against NumPy, and what they store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from tests.long_share import mostly_long

Array = np.ndarray[Any, Any]
NUMPY: dict[str, Callable[[Array, int], Array]] = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "cummax": np.maximum.accumulate,
}


def drawn(rng: np.random.Generator, backend: str) -> Array:
    """Numbers whose sums and products are exact in float32, in a drawn shape: long ones too."""
    shape = rng.integers(1, 9, rng.integers(1, 4))
    longer = [1, 3, 17, 129, 700] if backend == "cpu" else [1, 3, 5]
    shape[rng.integers(len(shape))] *= int(rng.choice(longer))
    values = rng.choice([-1.0, 1.0, 1.0, 1.0], shape)
    values.flat[rng.integers(values.size, size=4)] = [2.0, 0.5, -4.0, 0.25]
    return values.astype(rng.choice(["f4", "f8", "i4", "i8"]))


def read(rng: np.random.Generator, rank: int, axis: int, extent: int) -> tuple[Any, ...]:
    """Subscripts that read one position of `axis`, mostly the last, all or some of the others."""
    others = (slice(None), slice(None, None, -1), slice(0, 1), 0)
    where: list[Any] = [others[rng.choice(4, p=[0.6, 0.2, 0.1, 0.1])] for _ in range(rank)]
    where[axis] = extent - 1 if rng.random() < 0.8 else int(rng.integers(extent))
    return tuple(where)


def compute(backend: str, x: Array, record: Callable[[lm.Tensor], list[lm.Tensor]]) -> list[Array]:
    cx = lm.Graph()
    made = record(cx.tensor(x.shape, str(x.dtype), name="x"))
    for k, y in enumerate(made):
        y.output(f"y{k}")
    found = lm.compile(cx, backend=backend)({"x": x})
    return [np.asarray(found[f"y{k}"]) for k in range(len(made))]


@pytest.mark.parametrize("backend", ["cpu", "interpreted"])
@pytest.mark.parametrize("seed", mostly_long(list(range(60)), 6))
def test_ends_of_scans(backend: str, seed: int) -> None:
    """Of one row or of several, read at the end or elsewhere, by one reader or two."""
    rng = np.random.default_rng(seed)
    x = drawn(rng, backend)
    axis = int(rng.integers(x.ndim))
    kind = str(rng.choice(list(NUMPY)))
    places = [read(rng, x.ndim, axis, x.shape[axis]) for _ in range(rng.integers(1, 3))]

    def record(t: lm.Tensor) -> list[lm.Tensor]:
        scanned = getattr(t, kind)(axis)
        scanned = scanned[0] if kind == "cummax" else scanned
        return [scanned[where] for where in places]

    expected = NUMPY[kind](x.astype(np.float64), axis)
    for y, where in zip(compute(backend, x, record), places, strict=True):
        np.testing.assert_array_equal(y, expected[where])


@pytest.mark.parametrize("backend", ["cpu", "interpreted"])
@pytest.mark.parametrize("seed", mostly_long(list(range(60)), 6))
def test_products(backend: str, seed: int) -> None:
    """Over one axis, several or all, of what lies in any order and is computed or masked."""
    rng = np.random.default_rng(seed)
    x = drawn(rng, backend)
    order = tuple(map(int, rng.permutation(x.ndim)))
    dims = tuple(k for k in range(x.ndim) if rng.random() < 0.6) or (0,)

    def record(t: lm.Tensor) -> list[lm.Tensor]:
        t = t.permute(*order)
        kept = lm.where(t > 0, t, 1)
        return [t.prod(dims), t.prod(), (t * -1).prod(dims, keepdim=True) * t, kept.prod(dims)]

    moved = x.astype(np.float64).transpose(order)
    expected = [
        moved.prod(dims),
        moved.prod(),
        (-moved).prod(dims, keepdims=True) * moved,
        np.where(moved > 0, moved, 1).prod(dims),
    ]
    for y, wanted in zip(compute(backend, x, record), expected, strict=True):
        np.testing.assert_array_equal(y, wanted)


def labels(record: Callable[[lm.Tensor], lm.Tensor], numerics: str = "standard") -> list[str]:
    """The kernels of a function of a matrix of 300 x 40."""
    cx = lm.Graph()
    record(cx.tensor((300, 40), name="x")).output("y")
    return [kernel.label for kernel in lm.compile(cx, numerics=numerics).report().kernels]


def test_ends_are_reductions() -> None:
    assert labels(lambda x: x.prod()) == ["Prod"]
    assert labels(lambda x: x.prod(0).prod(0)) == ["Prod"]
    assert labels(lambda x: x.cumsum(1)[:, -1]) == ["Sum"]
    assert labels(lambda x: x.cumsum(1)[:, 38]) == ["Scan", "Copy"]
    assert labels(lambda x: x.prod(), "exact") == ["Scan", "Copy"]


def test_exact_products_keep_the_order_of_the_row() -> None:
    x = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    cx = lm.Graph()
    cx.tensor(x.shape, name="x").prod(0).output("y")
    found = lm.compile(cx, numerics="exact")({"x": x})["y"]
    expected = np.multiply.accumulate(x, 0)[-1]
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_products_of_open_extents(n: int) -> None:
    cx = lm.Graph()
    x = cx.tensor((cx.dim("n", 0, 4096), 3), name="x")
    x.prod(0).output("y")
    x.prod().output("all")
    given = np.random.default_rng(n).choice([-1.0, 1.0], (n, 3)).astype(np.float32)
    found = lm.compile(cx)({"x": given})
    np.testing.assert_array_equal(found["y"], given.prod(0))
    np.testing.assert_array_equal(found["all"], given.prod())

"""Outputs that read nothing of an input and have its shape: the input given says the dims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base.errors import DimError, DTypeError, ShapeError
from luminal.shape.parse import parse

# Functions of x that no element of x decides, and what they are for an x of shape (n, 2).
SHAPED: dict[str, tuple[Callable[[Any], Any], Callable[[int], Any]]] = {
    "zeros_like": (lambda x: lm.zeros_like(x), lambda n: np.zeros((n, 2))),
    "ones_like": (lambda x: lm.ones_like(x), lambda n: np.ones((n, 2))),
    "full_like": (lambda x: lm.full_like(x, 3), lambda n: np.full((n, 2), 3)),
    "power 0": (lambda x: x**0, lambda n: np.ones((n, 2))),
    "new_ones": (lambda x: x.new_ones(x.shape[0], 3), lambda n: np.ones((n, 3))),
    "full": (lambda x: x.graph.full(x.shape, 2), lambda n: np.full((n, 2), 2)),
    "iota": (lambda x: x.graph.iota(x.shape, 0), lambda n: np.arange(n).repeat(2).reshape(n, 2)),
    "arange": (lambda x: x.graph.arange(x.shape[0]), np.arange),
    "extent": (lambda x: x.graph.constant(x.shape[0] * 2), lambda n: np.array(2 * n)),
    "isfinite": (lambda x: x.int().isfinite(), lambda n: np.ones((n, 2), bool)),
}


def graph_of(fn: Callable[[Any], Any]) -> tuple[lm.Graph, Any, Any]:
    cx = lm.Graph()
    x = cx.tensor((cx.dim("s", 0, 9), 2), name="x")
    return cx, x, fn(x).output("y")


def given(n: int) -> dict[str, Any]:
    return {"x": np.full((n, 2), np.nan, np.float32)}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", SHAPED)
def test_an_input_that_is_not_read_gives_its_dims(name: str, backend: str) -> None:
    fn, wanted = SHAPED[name]
    cx, x, _ = graph_of(fn)
    exe = lm.compile(cx, backend=backend)
    for n in (3, 5, 0):
        np.testing.assert_array_equal(exe(given(n))["y"], wanted(n))
    np.testing.assert_array_equal(exe()["y"], wanted(0))  # inputs are kept for later runs
    np.testing.assert_array_equal(exe({x: given(4)["x"]})["y"], wanted(4))


@pytest.mark.parametrize("name", ["zeros_like", "power 0"])
def test_an_input_that_is_set_gives_its_dims(name: str) -> None:
    fn, wanted = SHAPED[name]
    cx, x, y = graph_of(fn)
    x.set(given(3)["x"])
    np.testing.assert_array_equal(y.numpy(), wanted(3))  # compiled for this value alone
    exe = cx.compile()
    np.testing.assert_array_equal(cx.execute()["y"], wanted(3))
    x.set(given(4)["x"])
    np.testing.assert_array_equal(cx.execute()["y"], wanted(4))
    exe.set(given(5))
    np.testing.assert_array_equal(exe()["y"], wanted(5))


def test_in_a_function_of_arrays() -> None:
    ones = lm.jit(lambda x: x**0, shapes={"x": ("s", 2)})
    for n in (2, 6):
        np.testing.assert_array_equal(ones(given(n)["x"]), np.ones((n, 2)))


def test_dims_may_be_named_instead() -> None:
    exe = lm.compile(graph_of(SHAPED["zeros_like"][0])[0])
    assert exe(dims={"s": 4})["y"].shape == (4, 2)


def test_what_does_not_fit_is_said() -> None:
    exe = lm.compile(graph_of(SHAPED["zeros_like"][0])[0])
    with pytest.raises(DimError, match="s: no input's shape gives this dim; pass dims"):
        exe()
    with pytest.raises(ShapeError, match=r"x: expected shape \(s, 2\), got \(3, 4\)"):
        exe({"x": np.zeros((3, 4), np.float32)})
    with pytest.raises(ShapeError, match=r"x: expected shape \(s, 2\), got \(3,\)"):
        exe({"x": np.zeros(3, np.float32)})
    with pytest.raises(DTypeError, match="x: expected float32"):
        exe({"x": np.zeros((3, 2), np.int64)})
    with pytest.raises(DimError, match=r"s: 10 is outside its interval 0\.\.9"):
        exe(given(10))
    with pytest.raises(DimError, match=r"s: dims says 4, x of shape \(3, 2\) says 3"):
        exe(given(3), dims={"s": 4})


def test_an_input_is_asked_only_where_no_other_gives_the_dim() -> None:
    cx, _, _ = graph_of(lm.zeros_like)
    z = cx.tensor(("s",), name="z")
    (z + 1).output("z1")
    exe = lm.compile(cx)
    found = exe({"z": np.ones(3, np.float32)})
    assert found["y"].shape == (3, 2)
    assert exe({"z": np.ones(4, np.float32), **given(4)})["y"].shape == (4, 2)


# Shapes in which dims do not stand bare, and what an input of the extents says.
SUMS: dict[str, tuple[tuple[Any, ...], tuple[int, ...], dict[str, int]]] = {
    "a sum": (("s + 1",), (8,), {"s": 7}),
    "a multiple": (("2 * s",), (8,), {"s": 4}),
    "a multiple and more": (("3 * s - 2", 2), (10, 2), {"s": 4}),
    "a product": (("s * t", "t"), (12, 4), {"s": 3, "t": 4}),
    "one by another": (("s + t", "t + 1"), (9, 5), {"s": 5, "t": 4}),
}


@pytest.mark.parametrize("read", [True, False], ids=["read", "not read"])
@pytest.mark.parametrize("name", SUMS)
def test_dims_of_sums_and_products_are_solved(name: str, read: bool) -> None:
    shape, given, wanted = SUMS[name]
    cx = lm.Graph()
    dims = {name: cx.dim(name, 0, 9) for name in wanted}
    extents = tuple(parse(n, dims) if isinstance(n, str) else n for n in shape)
    x = cx.tensor(extents, name="x")
    for dim in dims.values():
        (cx.arange(dim) + (x.sum() * 0 if read else 0)).output(f"{dim.name}s")
    found = lm.compile(cx)({"x": np.ones(given, np.float32)})
    assert {name: found[f"{name}s"].shape for name in wanted} == {
        d: (n,) for d, n in wanted.items()
    }


def test_what_does_not_come_out_whole_is_refused() -> None:
    cx = lm.Graph()
    s = cx.dim("s", 1, 9)
    cx.tensor((2 * s,), name="x")[:s].output("y")
    exe = lm.compile(cx)
    with pytest.raises(ShapeError, match=r"dimension 0 is 7, not 6; s \* 2 = 6 with s = 3"):
        exe({"x": np.ones(7, np.float32)})
    with pytest.raises(DimError, match=r"s: 10 is outside its interval 1\.\.9"):
        exe({"x": np.ones(20, np.float32)})


def test_a_square_says_nothing() -> None:
    cx = lm.Graph()
    s = cx.dim("s", 1, 9)
    cx.tensor((s * s,), name="x")[:s].output("y")
    with pytest.raises(DimError, match="s: no input's shape gives this dim; pass dims"):
        lm.compile(cx)({"x": np.ones(9, np.float32)})

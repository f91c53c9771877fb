"""Positions that a sort gives are in range, so that nothing checks them; all else is checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.algebra.lower import lower
from luminal.algebra.terms import term_order

N, K = 9, 4

Index = Callable[[Any], Any]


def _positions(like: Any) -> Any:
    return like.graph.arange(N, dtype=like.dtype)


INSIDE: dict[str, tuple[Index, Index]] = {
    "order": (lambda o: o, lambda o: o),
    "cast": (lambda o: o.cast(lm.int32), lambda o: o),
    "part": (lambda o: o[:K], lambda o: o[:K]),
    "again": (lambda o: o.take(o, 0), lambda o: o[o]),
    "quotient": (lambda o: o // 2, lambda o: o // 2),
    "remainder": (lambda o: (o + 5) % N, lambda o: (o + 5) % N),
    "inverse": (
        lambda o: o.scatter(0, o, _positions(o)),
        lambda o: np.argsort(o),
    ),
}
OUTSIDE: dict[str, tuple[Index, Index]] = {
    "below": (lambda o: o - 1, lambda o: o - 1),
    "above": (lambda o: o + 1, lambda o: o + 1),
    "double": (lambda o: o * 2, lambda o: o * 2),
    "two": (lambda o: o - o.flip(0), lambda o: o - o[::-1]),
    "of_positions": (
        lambda o: lm.where(o < _positions(o), o, o + 3),
        lambda o: np.where(o < np.arange(N), o, o + 3),
    ),
    "of_moved_positions": (
        lambda o: lm.where((o + _positions(o)).flip(0) < _positions(o), o, o + 3),
        lambda o: np.where((o + np.arange(N))[::-1] < np.arange(N), o, o + 3),
    ),
    "narrow": (lambda o: (o + 200).cast(lm.int8), lambda o: (o + 200).astype(np.int8)),
    "written": (
        lambda o: o.scatter(0, o[:2], o.graph.arange(2, dtype=o.dtype) + 20),
        lambda o: _with(o, o[:2], np.arange(2) + 20),
    ),
}


def _with(x: np.ndarray[Any, Any], at: Any, values: Any) -> np.ndarray[Any, Any]:
    y = x.copy()
    y[at] = values
    return y


def _taken(x: np.ndarray[Any, Any], index: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Negative positions count from the end; what does not exist is 0."""
    wrapped = np.where(index < 0, index + len(x), index)
    inside = (wrapped >= 0) & (wrapped < len(x))
    return np.where(inside, x[np.where(inside, wrapped, 0)], 0)


def _graph(index: Index) -> lm.Graph:
    cx = lm.Graph()
    x, key = cx.tensor((N,), name="x"), cx.tensor((N,), name="key")
    x.take(index(key.argsort()), 0).output("y")
    return cx


def _checks(graph: lm.Graph) -> int:
    """How many comparisons and choices the lowered program holds."""
    terms = term_order(root.term for root in lower(graph.graph()).roots)
    return sum(term.op in ("LessThan", "Select") for term in terms)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_what_is_read_there(backend: str) -> None:
    rng = np.random.default_rng(0)
    x, key = rng.normal(size=(2, N)).astype(np.float32)
    for name, (index, expected) in (INSIDE | OUTSIDE).items():
        found = lm.compile(_graph(index), backend=backend)(x=x, key=key)["y"]
        np.testing.assert_array_equal(found, _taken(x, expected(np.argsort(key))), name)


@pytest.mark.parametrize("name", INSIDE)
def test_nothing_is_checked(name: str) -> None:
    assert _checks(_graph(INSIDE[name][0])) == 0


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_may_be_outside_is_checked(name: str) -> None:
    assert _checks(_graph(OUTSIDE[name][0])) > 0

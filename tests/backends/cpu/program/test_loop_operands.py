"""Loops whose operands are copied for them, launched in another order than they were recorded."""

from __future__ import annotations

import numpy as np
import pytest

import luminal as lm
from tests.close import close, close_each


def recurrence(a: lm.Tensor, b: lm.Tensor) -> lm.Tensor:
    """r_t = a_t r_{t-1} + b_t along the first dim."""

    def step(r: lm.Tensor, ab: tuple[lm.Tensor, lm.Tensor]) -> tuple[lm.Tensor, lm.Tensor]:
        following = ab[0] * r + ab[1]
        return following, following

    none = b.graph.zeros(b.extents[1:], dtype="float64")
    ys: lm.Tensor = lm.scan(step, none, (a, b))[1]
    return ys


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_copies_of_operands_come_before_loops_that_are_moved_forward(shared: bool) -> None:
    """A kernel that is merged needs the second Loop early, and so the copy that the Loop reads;
    `shared`: a copy that a third Loop reads too.
    """
    x = np.random.default_rng(0).standard_normal((4, 2))
    found = []
    for backend in ("cpu", "reference"):
        cx = lm.Graph()
        given = cx.tensor(x.shape, np.float64, "x")
        q, moved = given.sin(), given.roll(-1, 0)
        y = recurrence(given, q * given.exp()) + (q * recurrence(moved, given)).roll(-1, 0)
        if shared:
            y = y + recurrence(moved, moved)
        y.output("y")
        found.append(lm.compile(cx, backend)({"x": x})["y"])
    close_each(*found, ulp=32)


def test_a_carried_product_larger_than_a_tile_never_reads_what_it_writes() -> None:
    """Every element of the next matrix needs a row of the last one: in one buffer only products of
    a single tile would come out right.
    """
    x = np.random.default_rng(0).standard_normal((3, 300, 300)).astype(np.float32) / 17

    def step(r: lm.Tensor, w: lm.Tensor) -> tuple[lm.Tensor, lm.Tensor]:
        following = r @ w
        return following, following.sum(0)

    cx = lm.Graph()
    weights = cx.tensor(x.shape, name="x")
    final, sums = lm.scan(step, cx.tensor(x.shape[1:], name="r"), weights)
    final.output("final")
    sums.output("sums")
    found = lm.compile(cx)(x=x, r=x[0])
    wanted, parts = x[0].astype(np.float64), []
    for w in x:
        wanted = wanted @ w
        parts.append(wanted.sum(0))
    close(found["final"], wanted, ulp=32)
    close(found["sums"], parts, ulp=32)

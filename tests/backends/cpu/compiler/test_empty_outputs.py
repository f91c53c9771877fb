"""Outputs without elements, fed by values that have some: all of it compiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import luminal as lm
from tests.close import close_each

LONG = 70_000  # enough for a reduction in two stages
SHAPES = [((5,), (5,)), ((5, 70), (5,)), ((5, 3), (5, 3)), ((5, 1), (LONG,)), ((5, LONG), (5, 1))]
CASES: dict[str, Callable[[lm.Tensor, lm.Tensor], lm.Tensor]] = {
    "compared": lambda x, v: (x >= v.amax(0, keepdim=True))[5:],
    "sum": lambda x, v: (x + v.exp().sum())[5:],
    "mean": lambda x, v: (x - v.mean())[5:].exp(),
    "of none": lambda x, v: x[2:2] * v.sum() + v.amax(),
    "reduced": lambda x, v: (x * v.sum())[5:].sum(0),
    "joined": lambda x, v: lm.cat([(x * v.sum())[5:], x]),
}


@pytest.mark.parametrize("names", [[name] for name in CASES] + [[*CASES]], ids=",".join)
@pytest.mark.parametrize(("x_shape", "v_shape"), SHAPES)
def test_an_empty_part_of_what_reductions_feed(
    x_shape: tuple[int, ...], v_shape: tuple[int, ...], names: list[str]
) -> None:
    cx = lm.Graph()
    x, v = cx.tensor(x_shape, name="x"), cx.tensor(v_shape, name="v")
    for name in names:
        CASES[name](x, v).output(name)
    given = {"x": np.ones(x_shape, np.float32), "v": np.ones(v_shape, np.float32)}
    wanted = lm.compile(cx, backend="reference")(given)
    found = lm.compile(cx)(given)
    for name in names:
        close_each(found[name], wanted[name])

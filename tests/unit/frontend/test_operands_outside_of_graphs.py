"""A Parameter or State in the place of a Tensor, where nothing is recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.nn import functional as F

P = lm.Parameter(np.ones((3, 4), np.float32), name="p")
ACROSS = lm.Parameter(np.ones((4, 3), np.float32))
CALLS: dict[str, Callable[[Any], Any]] = {
    "p ** 2": lambda p: p**2,
    "2 ** p": lambda p: 2**p,
    "p + 1": lambda p: p + 1,
    "1 - p": lambda p: 1 - p,
    "p * p": lambda p: p * p,
    "p @ p.T": lambda p: p @ p.T,
    "p > 0": lambda p: p > 0,
    "-p": lambda p: -p,
    "abs": abs,
    "p[0]": lambda p: p[0],
    "p[:, 1]": lambda p: p[:, 1],
    "list": list,
    "sum": lm.sum,
    "exp": lm.exp,
    "mean": lm.mean,
    "cat": lambda p: lm.cat([p, p]),
    "einsum": lambda p: lm.einsum("ij->i", p),
    "linear": lambda p: F.linear(lm.Graph().tensor((4,), name="x"), p),
    "embedding": lambda p: F.embedding(lm.Graph().tensor((2,), "int64", "ids"), p),
    "mse_loss": lambda p: F.mse_loss(p, p),
}


@pytest.mark.parametrize("name", CALLS)
def test_they_are_tensors_of_the_default_graph(name: str) -> None:
    lm.reset()
    given = CALLS[name](P)
    first = given[0] if isinstance(given, list) else given
    assert (first.graph is lm.default_graph()) == (name not in ("linear", "embedding"))
    if first.dtype.is_float:
        first.sum().backward()
        assert P.grad.graph is first.graph
        assert P.grad.shape == P.shape
        P.grad = None
    of_state = CALLS[name](lm.State((3, 4)))
    assert isinstance(of_state[0] if isinstance(of_state, list) else of_state, lm.Tensor)


def test_a_graph_of_ones_own_does_not_take_them() -> None:
    loss = lm.Graph("mine").tensor((3,), name="x").sum()
    with pytest.raises(lm.GraphError, match=r"tensors of two graphs meet: .* used in"):
        loss + (P**2).sum()


def test_beside_a_tensor_they_are_operands() -> None:
    x = lm.Graph().tensor((3, 4), name="x")
    for y in (P + x, x + P, P * x, P - x, x / P, P**x, x @ ACROSS, ACROSS @ x):
        assert y.graph is x.graph

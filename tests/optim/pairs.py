"""One small problem for optimizers of ours and of PyTorch: the same data, the same steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import luminal as lm

Array = np.ndarray[Any, Any]
SHAPES = {"w": (5, 4), "b": (4,), "scale": (), "nothing": (0, 3)}
STEPS = 20


def first_values(dtype: Any = np.float32) -> dict[str, Array]:
    """A matrix that the loss uses twice, a vector, a number, and what has no elements."""
    rng = np.random.default_rng(3)
    return {name: np.asarray(rng.normal(0, 1, s), dtype) for name, s in SHAPES.items()}


def batches(dtype: Any = np.float32) -> Iterator[tuple[Array, Array]]:
    """Inputs and targets of every step."""
    rng = np.random.default_rng(4)
    for _ in range(STEPS):
        yield rng.normal(0, 1, (6, 5)).astype(dtype), rng.normal(0, 1, (6, 5)).astype(dtype)


def loss_of(x: Any, y: Any, w: Any, b: Any, scale: Any, nothing: Any) -> Any:
    """For both libraries."""
    hidden = (x @ w + b).tanh() * scale
    return ((hidden @ w.T - y) ** 2).mean() + nothing.sum()


class Ours:
    """Parameters and a graph of the loss."""

    def __init__(self, dtype: Any = np.float32) -> None:
        values = first_values(dtype)
        self.params = {name: lm.Parameter(v, name=name) for name, v in values.items()}
        self.graph = lm.Graph()
        self.x = self.graph.tensor((6, 5), dtype, "x")
        self.y = self.graph.tensor((6, 5), dtype, "y")
        weights = {name: self.graph.weight_of(p) for name, p in self.params.items()}
        self.loss = loss_of(self.x, self.y, **weights).output("loss")

    def numpy(self) -> dict[str, Array]:
        """The Parameters' values."""
        return {name: np.array(p.numpy()) for name, p in self.params.items()}


class Theirs:
    """The same of PyTorch."""

    def __init__(self, dtype: Any = np.float32) -> None:
        values = first_values(dtype)
        self.params = {
            name: torch.nn.Parameter(torch.from_numpy(v.copy())) for name, v in values.items()
        }

    def step(
        self,
        optimizer: torch.optim.Optimizer,
        x: Array,
        y: Array,
        clip: Callable[[Any], Any] | None = None,
    ) -> float:
        """One step; the loss before it."""
        optimizer.zero_grad()
        loss = loss_of(torch.from_numpy(x), torch.from_numpy(y), **self.params)
        loss.backward()
        if clip is not None:
            clip(list(self.params.values()))
        optimizer.step()
        return float(loss.detach())

    def numpy(self) -> dict[str, Array]:
        """The parameters' values."""
        return {name: p.detach().numpy() for name, p in self.params.items()}


def assert_near(found: dict[str, Array], expected: dict[str, Array], tol: float = 1e-5) -> None:
    """Every value within `tol`, relative to 1 and to itself."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tol, atol=tol, err_msg=name)

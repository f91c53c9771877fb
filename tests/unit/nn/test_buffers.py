"""Tensors that modules keep: registered, assigned to buffers, plain attributes, as in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn

X = np.arange(4, dtype=np.float32)


def module(there: Any, layers: Any, draw: np.random.Generator) -> Any:
    """A module of `luminal` or `torch` whose buffers are made and changed in drawn ways."""

    class Made(layers.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for k in range(4):
                name, kind = f"b{k}", int(draw.integers(7))
                value = there.arange(4) * float(draw.integers(1, 5)) + 1
                if kind == 0:
                    setattr(self, name, value)
                    continue
                self.register_buffer(name, value, persistent=bool(draw.integers(2)))
                if kind == 2:
                    setattr(self, name, getattr(self, name) * 2 - 1)
                elif kind == 3:
                    setattr(self, name, there.ones(2, 4))
                elif kind == 4:
                    setattr(self, name, there.arange(4))
                elif kind == 5:
                    self.register_buffer(name, there.zeros(4))
                elif kind == 6:
                    setattr(self, name, None)

        def forward(self, x: Any) -> Any:
            for k in range(4):
                held = getattr(self, f"b{k}")
                x = x if held is None else x * 0.5 + held
            return x

    return Made()


@pytest.mark.parametrize("seed", range(6))
def test_drawn_buffers(seed: int) -> None:
    ours = module(lm, nn, np.random.default_rng(seed))
    theirs = module(torch, torch.nn, np.random.default_rng(seed))
    wanted = theirs(torch.from_numpy(X)).numpy()
    cx = lm.Graph()
    ours(cx.tensor((4,), name="x")).output("y")  # a graph of one's own, as fit's
    np.testing.assert_allclose(lm.compile(cx, "reference")(x=X)["y"], wanted, 1e-6)
    saved = theirs.state_dict()
    assert [*ours.state_dict()] == [*saved]
    for name, value in ours.state_dict().items():
        np.testing.assert_array_equal(value, saved[name].numpy())
    names = [name for name, _ in theirs.named_buffers()]
    assert [name for name, _ in ours.named_buffers()] == names


def test_running_values_as_ports_keep_them() -> None:
    class Running(nn.Module):
        mean: Any

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", lm.zeros(4))

        def forward(self, x: Any) -> Any:
            self.mean = 0.5 * self.mean + 0.5 * x
            return x - self.mean

    layer = Running()
    state = layer.mean
    for _ in range(2):
        y = layer(lm.tensor(X))
    np.testing.assert_array_equal(y.numpy(), X / 4)
    assert layer.mean is state
    cx = lm.Graph()
    with pytest.raises(lm.InputError, match=r"Running.mean is a State, .*lm.assign\(self.mean, n"):
        layer(cx.tensor((4,), name="x"))
    assert layer.mean is state
    np.testing.assert_array_equal(layer.mean.numpy(), X * 3 / 4)


def test_what_is_no_value_is_refused() -> None:
    class Holding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", lm.zeros(4))
            self.weight: Any = nn.Parameter((4,))

    layer = Holding()
    with pytest.raises(lm.InputError, match=r"Holding.table is a State, got a str; write self.tab"):
        layer.table = "x"
    with pytest.raises(lm.InputError, match=r"Holding.weight is a Parameter, got a Tensor; write"):
        layer.weight = lm.zeros(4)


def test_what_parameters_lead_to_is_no_constant() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter((4,))
            self.twice = lm.default_graph().read(self.weight) * 2

        def forward(self, x: Any) -> Any:
            return x * self.twice

    cx, layer = lm.Graph(), Scaled()
    with pytest.raises(lm.GraphError, match="tensors of two graphs meet"):
        layer(cx.tensor((4,), name="x"))

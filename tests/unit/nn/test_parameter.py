"""nn.Parameter: made of a shape or of a value, and used as an operand."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from luminal.base.errors import DTypeError, ShapeError
from tests.close import close

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Scaled(nn.Module):
    """A module as one writes it in PyTorch: Parameters are operands."""

    def __init__(self) -> None:
        self.inner = nn.Linear(3, 3)
        self.scale = nn.Parameter(np.float32([1, 2, 3]))
        self.shift = nn.Parameter([[0.5]], requires_grad=False)
        self.turn = nn.Parameter(torch.eye(3) * 2)

    def forward(self, x: lm.Tensor) -> Any:
        y = (x * self.scale - self.shift) @ self.turn
        return lm.maximum(self.shift, self.inner(y) + lm.where(x > 1, self.scale, 0))


def test_parameters_are_operands_named_by_their_paths() -> None:
    model = nn.Sequential(Scaled())
    cx = lm.Graph()
    model(cx.tensor((2, 3), name="x")).output("y")
    names = {"0.inner.weight", "0.inner.bias", "0.scale", "0.shift", "0.turn"}
    assert set(cx.leaves) == {"x", *names}
    assert {name for name, _ in model.named_parameters()} == names
    weight, bias = (model[0].inner.weight.numpy(), model[0].inner.bias.numpy())  # type: ignore[attr-defined]
    scale = np.float32([1, 2, 3])
    inner = (X * scale - 0.5) @ (np.eye(3) * 2) @ weight.T + bias
    wanted = np.maximum(0.5, inner + np.where(X > 1, scale, 0))
    found = lm.compile(cx)({"x": X})["y"]
    close(found, wanted)


def test_parameters_of_shapes_and_of_values() -> None:
    assert nn.Parameter is lm.Parameter
    empty = nn.Parameter((2, 3))
    assert (empty.shape, empty.dtype, empty.requires_grad) == ((2, 3), lm.float32, True)
    with pytest.raises(ShapeError, match="no value yet"):
        empty.numpy()
    for data, dtype in ((X, "float32"), (X.astype(np.float64), "float64"), ([1, 2], "int64"),
                        (1.5, "float32"), (torch.ones(2, dtype=torch.bfloat16), "bfloat16"),
                        (torch.nn.Parameter(torch.ones(2)), "float32")):  # fmt: skip
        made = nn.Parameter(data)
        assert made.dtype is getattr(lm, dtype)
        assert made.shape == np.shape(made.numpy())
    assert nn.Parameter([1, 2], "float32").dtype is lm.float32
    source = X.copy()
    kept = nn.Parameter(source, requires_grad=False, name="w")
    source[:] = 0
    np.testing.assert_array_equal(kept.numpy(), X)
    assert (kept.name, kept.requires_grad) == ("w", False)
    for other in (copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
        np.testing.assert_array_equal(other.numpy(), X)
    assert nn.Parameter(np.array([0.1]), "float32").numpy() == np.float32(0.1)
    with pytest.raises(DTypeError, match="expected bfloat16, got float64"):
        nn.Parameter(np.array([0.1]), "bfloat16")
    with pytest.raises(ShapeError, match="is not a tuple of ints >= 0"):
        nn.Parameter((2, -1))


def test_what_a_parameter_has_not_says_how_it_is_used() -> None:
    weight = nn.Parameter((2, 3), name="w")
    with pytest.raises(AttributeError, match=r"w: f32.* has no 'relo': .*cx\.read"):
        weight.relo()
    cx = lm.Graph()
    x = cx.tensor((2, 2), name="x")
    (x @ weight).output("y")
    weight.set(X)
    np.testing.assert_array_equal(lm.compile(cx)({"x": np.eye(2, dtype=np.float32)})["y"], X)

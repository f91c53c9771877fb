"""Layers in training mode: running statistics as PyTorch's, dropout by keys."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from luminal.base.errors import GraphError, InputError, ShapeError
from tests.close import close, close_each

rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return rng.normal(0.3, 2, shape).astype(np.float32)


# --- running statistics ---------------------------------------------------------------------------

RUNNING = {
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(4), (6, 4)),
    "BatchNorm2d-average": (lambda nn: nn.BatchNorm2d(4, momentum=None), (3, 4, 2, 3)),
    "BatchNorm2d-untracked": (
        lambda nn: nn.BatchNorm2d(4, track_running_stats=False),
        (3, 4, 2, 3),
    ),
    "BatchNorm3d": (lambda nn: nn.BatchNorm3d(4, momentum=0.3, affine=False), (2, 4, 2, 3, 2)),
    "InstanceNorm2d": (lambda nn: nn.InstanceNorm2d(4, track_running_stats=True), (3, 4, 2, 3)),
    "InstanceNorm1d": (lambda nn: nn.InstanceNorm1d(4, affine=True), (3, 4, 5)),
}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_running_statistics_move_as_in_torch(backend: str) -> None:
    ours = {name: build(nn) for name, (build, _) in RUNNING.items()}
    theirs = {name: build(torch.nn) for name, (build, _) in RUNNING.items()}
    cx = lm.Graph()
    for name, layer in ours.items():
        layer(cx.tensor(RUNNING[name][1], name=name)).output(f"{name}.y")
    exe = lm.compile(cx, backend=backend)
    for _ in range(3):
        inputs = {name: normal(*shape) for name, (_, shape) in RUNNING.items()}
        found = exe(inputs)
        for name, layer in theirs.items():
            expected = layer(torch.from_numpy(inputs[name])).detach().numpy()
            close(found[f"{name}.y"], expected, 64)
            for key, value in layer.state_dict().items():
                close(ours[name].state_dict()[key], value.numpy(), 64)
    cx = lm.Graph()  # what was learned is what inference reads
    for name, layer in ours.items():
        layer.eval()(cx.tensor(RUNNING[name][1], name=name)).output(name)
    found = lm.compile(cx, backend=backend)(inputs)
    for name, layer in theirs.items():
        close(found[name], layer.eval()(torch.from_numpy(inputs[name])).detach().numpy(), 64)


def test_a_norm_used_twice_in_a_graph_moves_twice() -> None:
    ours, theirs = nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    first, second = normal(4, 3), normal(5, 3)
    cx = lm.Graph()
    for name, x in (("a", first), ("b", second)):
        ours(cx.tensor(x.shape, name=name)).output(f"{name}.y")
    lm.compile(cx, backend="reference")({"a": first, "b": second})
    for x in (first, second):
        theirs(torch.from_numpy(x))
    for key, value in theirs.state_dict().items():
        close(ours.state_dict()[key], value.detach().numpy(), 16)


def test_16_bit_inputs_have_statistics_in_float32() -> None:
    norm = nn.BatchNorm1d(3, momentum=1.0)
    x = normal(256, 3).astype(np.float16)
    cx = lm.Graph()
    y = norm(cx.tensor(x.shape, "float16", "x")).output("y")
    assert y.dtype is lm.float16
    lm.compile(cx, backend="reference")({"x": x})
    close_each(norm.running_mean.numpy(), x.astype(np.float64).mean(0))


def test_ranks_are_checked() -> None:
    cx = lm.Graph()
    with pytest.raises(ShapeError, match=r"BatchNorm2d: x: f32\[2, 3\]; it takes 4 dims"):
        nn.BatchNorm2d(3)(cx.tensor((2, 3), name="x"))


def test_copies_are_their_own() -> None:
    norm = nn.BatchNorm1d(3)
    other = copy.deepcopy(norm)
    other.running_mean.set(np.ones(3, np.float32))
    other.weight.set(np.zeros(3, np.float32))
    assert norm.running_mean.numpy().max() == 0
    assert norm.weight.numpy().max() == 1
    assert norm.weight.id != other.weight.id


# --- dropout --------------------------------------------------------------------------------------


def dropped(layer: nn.Module, x: Any, seed: int = 0, backend: str = "cpu") -> Any:
    cx = lm.Graph()
    with nn.keyed(lm.random.key(cx.tensor((), "int64", "seed"))):
        layer(cx.tensor(x.shape, name="x")).output("y")
    return lm.compile(cx, backend=backend)({"x": x, "seed": np.int64(seed)})["y"]


def test_dropout() -> None:
    x = np.ones((200, 100), np.float32)
    y = dropped(nn.Dropout(0.25), x)
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.02
    np.testing.assert_array_equal(y, dropped(nn.Dropout(0.25), x, backend="reference"))
    assert (y != dropped(nn.Dropout(0.25), x, seed=1)).mean() > 0.2
    for value in (np.nan, np.inf):  # left out by choice, not by a product
        assert (dropped(nn.Dropout(0.99), x * np.float32(value)) == 0).mean() > 0.9


def test_dropout_of_channels() -> None:
    x = np.ones((40, 30, 4, 5), np.float32)
    y = dropped(nn.Dropout2d(0.4), x).reshape(1200, -1)
    assert (y == y[:, :1]).all()
    assert abs((y[:, 0] == 0).mean() - 0.4) < 0.06
    with pytest.raises(
        ShapeError, match=r"dropout1d: x: f32\[40, 30, 4, 5\]; it takes 2 or 3 dims"
    ):
        dropped(nn.Dropout1d(), x)


@pytest.mark.parametrize("name", ["AlphaDropout", "FeatureAlphaDropout"])
def test_alpha_dropout_keeps_mean_and_variance(name: str) -> None:
    y = dropped(getattr(nn, name)(0.3), rng.normal(0, 1, (200, 300, 3)).astype(np.float32))
    assert abs(y.mean()) < 0.03
    assert abs(y.std() - 1) < 0.03


def test_every_layer_gets_a_key_of_its_own() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    y = dropped(net, np.ones((100, 100), np.float32))
    assert abs((y == 0).mean() - 0.75) < 0.03


def test_training_without_a_key_is_an_error() -> None:
    cx = lm.Graph()
    x = cx.tensor((2, 3), name="x")
    with pytest.raises(GraphError, match=r"dropout: .* no random key; call model.eval\(\)"):
        nn.Dropout()(x)
    assert nn.Dropout().eval()(x) is x
    assert nn.Dropout(0.0)(x) is x
    with pytest.raises(InputError, match=r"p is 1.5; it is a probability"):
        nn.Dropout(1.5)


def test_a_transformer_layer_trains() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3)
    y = dropped(layer, normal(4, 2, 8))
    assert np.isfinite(y).all()
    assert not np.array_equal(y, dropped(layer, normal(4, 2, 8), seed=1))


def test_rrelu_draws_slopes() -> None:
    y = dropped(nn.RReLU(), -np.ones((100, 100), np.float32))
    assert -1 / 3 <= y.min() < -0.32
    assert -0.13 < y.max() <= -1 / 8


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False)])
def test_one_value_has_no_variance(layer: nn.Module) -> None:
    cx = lm.Graph()
    with pytest.raises(ShapeError, match=r"BatchNorm1d: .* has one value for each channel, which"):
        layer(cx.tensor((1, 4), name="one"))
    layer(cx.tensor((cx.dim("n", 1, 9), 4), name="x")).output("y")
    run = lm.compile(cx, backend="reference")
    with pytest.raises(lm.DimError, match="requirement n >= 2 does not hold"):
        run({"x": normal(1, 4)})
    run({"x": normal(2, 4)})
    assert all(np.isfinite(state.numpy()).all() for _, state in layer.named_buffers())


# --- losses ---------------------------------------------------------------------------------------


def test_weights_of_losses_are_in_the_state_dict() -> None:
    weight = [0.5, 1.0, 2.0]
    ours = nn.CrossEntropyLoss(weight, reduction="sum"), nn.BCEWithLogitsLoss(pos_weight=weight)
    theirs = (
        torch.nn.CrossEntropyLoss(torch.tensor(weight), reduction="sum"),
        torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weight)),
    )
    x, numbers = normal(4, 3), np.array([0, 2, 1, 2])
    shares = rng.uniform(0, 1, (4, 3)).astype(np.float32)
    cx = lm.Graph()
    inputs = [cx.tensor(x.shape, name="x"), cx.tensor((4,), "int64", "n"), cx.tensor((4, 3))]
    for k, layer in enumerate(ours):
        assert list(layer.state_dict()) == list(theirs[k].state_dict())
        layer(inputs[0], inputs[k + 1]).output(str(k))
    found = lm.compile(cx, backend="reference")({"x": x, "n": numbers, "in0": shares})
    for k, target in enumerate((numbers, shares)):
        expected = theirs[k](torch.from_numpy(x), torch.from_numpy(target)).numpy()
        close(found[str(k)], expected, 64)
    with pytest.raises(InputError, match="reduction 'average' is not among mean, sum, none"):
        nn.MSELoss(reduction="average")

"""First values: drawn when first read, PyTorch's distributions, seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from luminal import nn
from luminal.base.errors import InputError, ShapeError
from luminal.memory.parameter import Parameter
from luminal.nn import init
from tests.close import close

DEFAULTS = {
    "Linear": lambda nn: nn.Linear(300, 200),
    "Conv2d": lambda nn: nn.Conv2d(30, 40, 5, groups=2),
    "ConvTranspose1d": lambda nn: nn.ConvTranspose1d(30, 40, 9),
    "Bilinear": lambda nn: nn.Bilinear(40, 20, 30),
    "Embedding": lambda nn: nn.Embedding(300, 20, padding_idx=3),
    "LayerNorm": lambda nn: nn.LayerNorm(300),
    "LSTM": lambda nn: nn.LSTM(60, 50),
    "MultiheadAttention": lambda nn: nn.MultiheadAttention(100, 2),
    "Transformer": lambda nn: nn.Transformer(48, 2, 1, 1, 64),
    "PReLU": lambda nn: nn.PReLU(5),
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    init.manual_seed(0)
    torch.manual_seed(0)


@pytest.mark.parametrize("name", DEFAULTS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_defaults_are_distributed_as_those_of_torch(name: str) -> None:
    ours, theirs = (DEFAULTS[name](lib) for lib in (nn, torch.nn))
    for path, wanted in theirs.state_dict().items():
        found, expected = ours.state_dict()[path], wanted.numpy()
        rough = 6 / math.sqrt(found.size)
        assert abs(found.std() - expected.std()) <= rough * expected.std(), path
        assert abs(found.mean() - expected.mean()) <= rough * expected.std(), path
        if name != "Embedding":  # all others have an end
            np.testing.assert_allclose(np.abs(found).max(), np.abs(expected).max(), rtol=3 * rough)
    if name == "Embedding":
        assert np.abs(ours.weight.numpy()[3]).max() == 0


def test_nothing_is_drawn_before_it_is_read() -> None:
    drawn = []
    held = init.parameter((3,), lambda rng, shape: drawn.append(1) or np.ones(shape))
    held.set(np.zeros(3, np.float32))
    assert held.numpy().max() == 0
    assert not drawn
    held = init.parameter((3,), lambda rng, shape: drawn.append(1) or np.ones(shape))
    held.numpy(), held.numpy()
    assert len(drawn) == 1


def test_values_follow_from_the_seed_and_the_order_of_making() -> None:
    def values(order: tuple[int, int]) -> list[Any]:
        init.manual_seed(5)
        layers = nn.Linear(3, 4), nn.Linear(3, 4)
        for number in order:
            layers[number].weight.numpy()
        return [layer.weight.numpy() for layer in layers]

    first, second = values((0, 1)), values((1, 0))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(*first)
    with pytest.raises(InputError, match="seed=-1 is negative"):
        init.manual_seed(-1)


def test_initialize_draws_anew() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    twin = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    net[1].running_mean.set(np.ones(4, np.float32))
    before = net[0].weight.numpy()
    net.initialize(7), twin.initialize(7)
    assert not np.array_equal(before, net[0].weight.numpy())
    for name, array in net.state_dict().items():
        np.testing.assert_array_equal(array, twin.state_dict()[name])


def test_functions_that_set_a_parameter() -> None:
    held = Parameter((200, 300))
    assert init.xavier_uniform_(held, gain=2.0) is held
    # the greatest of some thousand draws lies within a hundredth of the bound
    np.testing.assert_allclose(held.numpy().max(), 2 * math.sqrt(6 / 500), rtol=0.01)
    init.kaiming_normal_(held, mode="fan_out", nonlinearity="relu")
    # a statistic of some ten thousand draws: a few of its standard deviations
    np.testing.assert_allclose(held.numpy().std(), math.sqrt(2 / 200), rtol=0.02)
    init.xavier_normal_(held)
    # a statistic of some ten thousand draws: a few of its standard deviations
    np.testing.assert_allclose(held.numpy().std(), math.sqrt(2 / 500), rtol=0.02)
    init.trunc_normal_(held, std=2.0)
    assert np.abs(held.numpy()).max() <= 2
    init.orthogonal_(held, 3.0)
    close(held.numpy() @ held.numpy().T, 9 * np.eye(200), ulp=16)
    init.sparse_(held, 0.3)
    assert ((held.numpy() == 0).sum(0) == 60).all()
    init.constant_(held, 1.5)
    assert (held.numpy() == 1.5).all()
    init.eye_(held)
    np.testing.assert_array_equal(held.numpy(), np.eye(200, 300, dtype=np.float32))
    window = Parameter((4, 2, 3, 3))
    init.dirac_(window, groups=2)
    expected = torch.nn.init.dirac_(torch.empty(4, 2, 3, 3), 2).numpy()
    np.testing.assert_array_equal(window.numpy(), expected)


def test_gains_and_errors() -> None:
    for name, param in [("tanh", None), ("relu", None), ("selu", None), ("leaky_relu", 0.2)]:
        assert init.calculate_gain(name, param) == torch.nn.init.calculate_gain(name, param)
    with pytest.raises(InputError, match="'swish' is not known; known are tanh, relu"):
        init.calculate_gain("swish")
    with pytest.raises(ShapeError, match="fewer than 2 dims"):
        init.xavier_uniform_(Parameter((3,)))
    with pytest.raises(InputError, match="mode 'fan' is not known"):
        init.kaiming_uniform_(Parameter((3, 3)), mode="fan")

"""Gradients of small networks of several layers, larger than toys, against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal import nn
from tests.long_share import mostly_long

Pair = tuple[nn.Module, torch.nn.Module]


def conv(*sizes: int, **options: Any) -> Pair:
    return nn.Conv2d(*sizes, **options), torch.nn.Conv2d(*sizes, **options)


def turned(*sizes: int, **options: Any) -> Pair:
    return nn.ConvTranspose2d(*sizes, **options), torch.nn.ConvTranspose2d(*sizes, **options)


def both(name: str, *args: Any) -> Pair:
    return getattr(nn, name)(*args), getattr(torch.nn, name)(*args)


NETWORKS: dict[str, Callable[[], list[Pair]]] = {
    "padded_convolutions_around_a_group_norm": lambda: [
        conv(3, 8, 3, padding=1), both("GroupNorm", 2, 8), both("SiLU"), both("AvgPool2d", 2),
        conv(8, 4, 3, padding=1),
    ],
    "strided_convolutions_and_batch_norms": lambda: [
        conv(3, 16, 3, padding=1), both("BatchNorm2d", 16), both("ReLU"),
        conv(16, 32, 3, stride=2, padding=1), both("BatchNorm2d", 32), both("ReLU"),
        conv(32, 8, 1, stride=2),
    ],
    "a_stem_and_an_overlapping_pool": lambda: [
        conv(3, 24, 7, stride=2, padding=3), both("BatchNorm2d", 24), both("ReLU"),
        both("MaxPool2d", 3, 2, 1), conv(24, 8, 3, padding=1),
    ],
    "depthwise_and_dilated": lambda: [
        conv(3, 16, 1), both("ReLU"), conv(16, 16, 3, padding=2, dilation=2, groups=16),
        conv(16, 20, 3, stride=3), both("GELU"), conv(20, 4, 2),
    ],
    "down_and_up_again": lambda: [
        conv(3, 8, 3, stride=2, padding=1), both("ReLU"),
        turned(8, 6, 4, stride=2, padding=1, groups=2), both("Tanh"),
        turned(6, 4, 3, stride=2, output_padding=2, dilation=3),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "size", mostly_long([(2, 3, 17, 23), (4, 3, 32, 32)], 1), ids=["odd", "even"]
)
@pytest.mark.parametrize("name", mostly_long(NETWORKS, 3))
def test_gradients_of_all_parameters(name: str, size: tuple[int, ...]) -> None:
    torch.manual_seed(0)  # else a relu may stand at a rounding now and then
    pairs = NETWORKS[name]()
    ours, theirs = (
        nn.Sequential(*[p for p, _ in pairs]),
        torch.nn.Sequential(*[p for _, p in pairs]),
    )
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        mine.set(other.detach().numpy())
    random = np.random.default_rng(0)
    x = random.standard_normal(size, np.float32)
    y = theirs(torch.from_numpy(x))
    seed = random.standard_normal(tuple(y.shape), np.float32)
    wanted = torch.autograd.grad(y, [*theirs.parameters()], torch.from_numpy(seed))
    cx = lm.Graph()
    out = ours(cx.tensor(size, name="x"))
    given = cx.tensor(out.shape, name="seed")
    for k, g in enumerate(lm.grad(out, [*ours.parameters()], given)):
        g.output(f"g{k}")
    found = lm.compile(cx)({"x": x, "seed": seed})
    largest = max(float(g.abs().max()) for g in wanted)  # a bias before a batch norm has none
    for k, expected in enumerate(wanted):
        # a network's sums in another order, some 100 ulp, of the largest gradient of all
        np.testing.assert_allclose(found[f"g{k}"], expected.numpy(), atol=1e-5 * largest, rtol=1e-4)

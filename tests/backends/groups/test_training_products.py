"""Steps of training in bfloat16 for a chip of matrix instructions: no product goes without them."""

from __future__ import annotations

import numpy as np
import pytest

from luminal import nn, optim
from luminal.algebra.frames import upper
from luminal.compiler.compile import lower_by_stages
from luminal.frontend.tensor import Tensor
from luminal.nn import functional as F
from luminal.program.steps import NestStep
from luminal.session.graph import narrowed
from luminal.training.program import Recipe, Steps
from tests.backends.c_family import offline

WORK = 1 << 20  # multiplications from which a product is one of matrices


class FeedForward(nn.Module):
    """A block of a decoder but for its attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.drop(self.down(F.gelu(self.up(self.norm(x)))))
        return x + y


class Residual(nn.Module):
    """A block of a ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one, self.two = (
            nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2)
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norms[1](self.two(self.norms[0](self.one(x)).relu()))
        return (x + y).relu()


MODELS = {
    "feed forward": (FeedForward, 64, (128, 64)),
    "residual": (Residual, 32, (4, 32, 8, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_products_of_gradients_are_multiplied_by_fragments(name: str) -> None:
    """What a product reads rounded is stored rounded, also where others add it up as float32."""
    kind, width, shape = MODELS[name]
    model = nn.Sequential(*(kind(width) for _ in range(2)))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    steps = Steps(Recipe(model, F.mse_loss, optimizer, clip_norm=1.0, amp="bfloat16"))
    batch = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    graph = narrowed(steps.recorded(batch)[0])
    kernels = lower_by_stages(graph, offline.backend("cuda")).partition.steps
    by_dots = 0
    for step in kernels:
        if not isinstance(step, NestStep):
            continue
        for reduction in step.fused.reductions:
            if reduction.product and upper(reduction.axes) * upper(reduction.attrs) >= WORK:
                assert reduction in step.fused.dots, reduction
                by_dots += 1
    assert by_dots >= 4 * 3 - 1  # forward, and two gradients but for that of the input

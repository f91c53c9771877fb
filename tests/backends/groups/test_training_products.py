"""Steps of training in bfloat16 for a chip of matrix instructions: no product goes without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from luminal import nn, optim
from luminal.algebra.frames import upper
from luminal.base.dtypes import bfloat16
from luminal.compiler.compile import Stages, lower_by_stages, lower_to_program
from luminal.frontend.tensor import Tensor
from luminal.hlir.graph import Graph
from luminal.nn import functional as F
from luminal.program import memory_plan
from luminal.program.launch_list import Program
from luminal.program.steps import NestStep
from luminal.session.graph import narrowed
from luminal.training.program import LossFunction, Recipe, Steps
from tests.backends.c_family import offline
from tests.machines import usual

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


def step(model: nn.Module, loss: LossFunction, *batch: np.ndarray[Any, Any]) -> Graph:
    """A step in bfloat16, with AdamW and clipping."""
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    steps = Steps(Recipe(model, loss, optimizer, clip_norm=1.0, amp="bfloat16"))
    return narrowed(steps.recorded(batch))


def compiled(model: nn.Module, loss: LossFunction, *batch: np.ndarray[Any, Any]) -> Stages:
    """That step for a chip of matrix instructions."""
    return lower_by_stages(step(model, loss, *batch), offline.backend("cuda"))


@pytest.mark.parametrize("name", MODELS)
def test_products_of_gradients_are_multiplied_by_fragments(name: str) -> None:
    """What a product reads rounded is stored rounded, also where others add it up as float32."""
    kind, width, shape = MODELS[name]
    model = nn.Sequential(*(kind(width) for _ in range(2)))
    batch = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    by_dots = 0
    for each in compiled(model, F.mse_loss, *batch).partition.steps:
        if not isinstance(each, NestStep):
            continue
        for reduction in each.fused.reductions:
            if reduction.product and upper(reduction.axes) * upper(reduction.attrs) >= WORK:
                assert reduction in each.fused.dots, reduction
                by_dots += 1
    assert by_dots >= 4 * 3 - 1  # forward, and two gradients but for that of the input


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_a_device_holds_no_more_than_the_cpu(name: str) -> None:
    """Their arenas differ: the CPU stores pictures and packs weights, groups share less between
    passes, so a device may keep a value that the CPU computes again.
    """
    kind, width, shape = MODELS[name]
    model = nn.Sequential(*(kind(width) for _ in range(2)))
    batch = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    graph = step(model, F.mse_loss, *batch)
    device, cpu = (arena(lower_to_program(graph, b)) for b in (offline.backend("cuda"), usual()))
    assert device <= 1.1 * cpu


def arena(program: Program) -> int:
    """The bytes of all that lives within a run."""
    plan = memory_plan.plan(program, program.launches)
    sizes = [program.buffers[number].bytes.value for number in plan.buffers]
    return memory_plan.place(plan, sizes).arena_bytes


def test_nothing_as_large_as_the_logits_is_stored_but_they_and_their_gradient() -> None:
    """Both rounded: three kernels widen what they read, and none adds to zeros as many."""
    rows, width, classes = 64, 16, 1000
    x, target = np.zeros((rows, width), np.float32), np.zeros(rows, np.int32)
    stages = compiled(nn.Linear(width, classes, bias=False), F.cross_entropy, x, target)
    large = [b.dtype for b in stages.program.buffers if b.bytes.value >= 2 * rows * classes]
    assert large == [bfloat16] * 2


def test_a_picture_is_not_shared_out_by_channels() -> None:
    """What is left of their sums stands in a kernel of its own, where the picture is large."""
    channels, shape = 256, (32, 256, 56, 56)
    x = np.broadcast_to(np.float32(0), shape)
    model = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.BatchNorm2d(channels))
    for each in compiled(model, F.mse_loss, x, x).partition.steps:
        if isinstance(each, NestStep):
            few = [r for r in each.fused.reductions if upper(r.axes) <= channels]
            assert not few or all(upper(s.term.axes) < x.size for s in each.fused.stores)

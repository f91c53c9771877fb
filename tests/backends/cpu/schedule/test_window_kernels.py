"""How many kernels, and how much work, products and windows take on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import luminal as lm
import luminal.nn.functional as f
from luminal.backends.cpu.target import detect
from luminal.kernel.tile_ir import Load
from luminal.runtime.report import Report
from luminal.schedule.vectors.register_tile import register_tiles
from tests.fuzz.cpu_run import compiled


def report(fn: Callable[..., Any], *shapes: tuple[int, ...]) -> Report:
    """What a run of `fn` on inputs of these shapes launches."""
    cx = lm.Graph()
    tensors = [cx.tensor(shape, name=f"x{k}") for k, shape in enumerate(shapes)]
    fn(*tensors).output("y")
    exe = lm.compile(cx)
    exe({f"x{k}": np.ones(shape, np.float32) for k, shape in enumerate(shapes)})
    return exe.report()


X, W = (1, 8, 12, 12), (8, 8, 3, 3)
ONE_KERNEL = {
    "conv + bias + relu": (lambda x, w, b: f.conv2d(x, w, b, padding=1).relu(), X, W, (8,)),
    "depthwise": (lambda x, w: f.conv2d(x, w, stride=2, groups=8), X, (8, 1, 3, 3)),
    "transposed": (lambda x, w: f.conv_transpose2d(x, w, None, 2, 1), X, (8, 8, 4, 4)),
    "max pool": (lambda x: f.max_pool2d(x, 3, 2, 1), X),
    "max pool's indices": (lambda x: f.max_pool2d(x, 3, 2, 1, return_indices=True)[1], X),
    "avg pool": (lambda x: f.avg_pool2d(x, 3, 2, 1, count_include_pad=False), X),
    "lp pool": (lambda x: f.lp_pool2d(x, 2, 3), X),
    "adaptive pool": (lambda x: f.adaptive_avg_pool2d(x, 5), X),
    "nearest": (lambda x: f.interpolate(x, scale_factor=2), X),
    "unfold": (lambda x: f.unfold(x, 3, padding=1), X),
    "fold": (lambda x: f.fold(x, (7, 7), 3, stride=2), (1, 72, 9)),
    "pixel shuffle": (lambda x: f.pixel_shuffle(x, 2), X),
    "einsum of a product": (lambda x, y: lm.einsum("ij,kj->ki", x, y), (20, 30), (40, 30)),
    "linear": (lambda x, w, b: f.linear(x, w, b).relu(), (20, 30), (40, 30), (40,)),
    "attention": (
        lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True),
        *((1, 2, 64, 16),) * 3,
    ),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name: str) -> None:
    fn, *shapes = ONE_KERNEL[name]
    found = report(fn, *shapes)
    assert len(found.kernels) == 1, str(found)


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (2, 2), (6, 3), (3, 2), (7, 3), (1, 2)])
def test_transposed_convolution_multiplies_no_inserted_zeros(kernel: int, stride: int) -> None:
    """Each result is a sum over the taps that reach it, also where some have more than others."""
    channels, extent = 8, 6
    fn = lambda x, w: f.conv_transpose2d(x, w, stride=stride)  # noqa: E731
    found = report(fn, (1, channels, extent, extent), (channels, channels, kernel, kernel))
    blocks = -(-((extent - 1) * stride + kernel) // stride)
    products = (channels * blocks * kernel) ** 2
    assert found.flops < 2.6 * products  # a product, a sum, and the bounds of the borders


def test_einsum_takes_the_cheap_order() -> None:
    """A chain that ends in a vector: three products with the vector, none of matrices."""
    n = 64
    found = report(lambda a, b, c: lm.einsum("ij,jk,k->i", a, b, c), (n, n), (n, n), (n,))
    assert found.flops < 5 * n * n


@pytest.mark.parametrize("results", [2, 3])
def test_few_channels_share_what_is_loaded_of_a_picture(results: int) -> None:
    """Rows of results beside each other would load a vector for every multiplication."""
    cx = lm.Graph()
    x, w = cx.tensor((1, 4, 20, 64), name="x"), cx.tensor((results, 4, 3, 5), name="w")
    x.conv2d(w).output("y")
    (kernel,) = compiled(cx.graph())[1].program.kernels
    loads = [each for each in kernel.statements() if isinstance(each, Load)]
    assert {len(each.out.axes) for each in loads} == {1}


def test_columns_left_over_are_one_tile() -> None:
    """59 columns are four vectors: a tile of three, and then one by itself, would take as many
    steps of a sum again for it.
    """
    target = replace(detect(), vector_bits=512, registers=32)
    assert register_tiles(2, 59, 16, 1, 1, target)[0] == (2, 4)
    assert register_tiles(3, 175, 16, 1, 1, target)[0] == (3, 6)

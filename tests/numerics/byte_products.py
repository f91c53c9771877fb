"""Products of packed weights with activations in bytes, as NumPy computes them."""

from __future__ import annotations

from typing import Any

import numpy as np

import luminal as lm
from luminal.frontend.matrices.packed import Packed

Array = np.ndarray[Any, Any]


def in_bytes(x: Array) -> Array:
    """x as blocks of 32 are rounded to bytes, each by its float32 scale: in float64."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    codes = np.rint(blocks / np.where(scale == 0, np.float32(1), scale)).clip(-127, 127)
    return (codes.astype(np.float64) * scale).reshape(x.shape)


def some(*shape: int) -> Array:
    """Values of all sizes, a block of zeros among them."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, (*shape[:-1], 1))
    x[..., 32:64] = 0
    return x.astype(np.float32)


def recorded(weight: Packed, shape: tuple[int, ...]) -> lm.Graph:
    cx = lm.Graph()
    weight.product(cx.tensor(shape, name="x")).output("y")
    return cx

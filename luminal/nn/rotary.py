"""Rotary position embedding: pairs of features turned by an angle that grows with the position.

Su et al., arXiv 2104.09864; the frequency scaling is Llama 3.1's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from luminal.dtypes import float32
from luminal.errors import ShapeError
from luminal.frontend.creation import position
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array, Extent, along
from luminal.frontend.tensor import Tensor
from luminal.nn.module import Module
from luminal.shape.expression import const


class Angles(NamedTuple):
    """cos and sin of every position's angles, (s, head_dim / 2): shared by all layers."""

    cos: Tensor
    sin: Tensor


class RotaryEmbedding(Module):
    """Turns q and k. `interleaved` pairs features (2i, 2i+1), else (i, i + head_dim / 2).

    `scaling`: None, or Hugging Face's `rope_scaling` of type "llama3".
    """

    def __init__(
        self,
        head_dim: int,
        theta: float = 10000.0,
        scaling: Mapping[str, Any] | None = None,
        interleaved: bool = False,
    ) -> None:
        if head_dim % 2:
            raise ShapeError(f"rotary: head_dim {head_dim} is odd; pairs of features need it even")
        frequencies = theta ** (-np.arange(0, head_dim, 2) / head_dim)
        if scaling is not None:
            frequencies = _scaled(frequencies, scaling)
        self.frequencies = frequencies.astype(np.float32)
        self.interleaved = interleaved

    def angles(self, graph: Recorder, length: Extent, past: Extent = 0) -> Angles:
        """For the positions past .. past + length - 1."""
        count, first = graph.extents((length, past))
        positions = position(graph, first + along(0, count), (count,), float32)
        angles = positions.unsqueeze(-1) * self.frequencies
        return Angles(angles.cos(), angles.sin())

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        """x (..., s, head_dim), turned; same shape."""
        half = x.extents[-1] // 2
        if self.interleaved:
            pairs, dim = x.unflatten(-1, (half, 2)), -1
        else:
            pairs, dim = x.unflatten(-1, (2, half)), -2
        cos, sin = (each.unsqueeze(dim) for each in angles)
        signs = position(x.graph, along(0, const(2)) * 2 - 1, (const(2),), float32)  # -1 and 1
        if dim == -2:
            signs = signs.unsqueeze(-1)
        turned = pairs * cos + pairs.flip(dim) * sin * signs
        return turned.flatten(-2).cast(x.dtype)


def _scaled(frequencies: Array, scaling: Mapping[str, Any]) -> Array:
    """Llama 3.1: low frequencies divided by `factor`, high ones kept, those between blended."""
    if scaling.get("rope_type", scaling.get("type")) != "llama3":
        raise ShapeError(f"rotary: scaling {dict(scaling)} is not known; rope_type 'llama3' is")
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    blended: Array = (1 - kept) * frequencies / scaling["factor"] + kept * frequencies
    return blended

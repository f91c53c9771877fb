"""Rotary position embedding: pairs of features turned by an angle that grows with the position.

Su et al., arXiv 2104.09864.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from luminal.dtypes import bool_, float32
from luminal.errors import ShapeError
from luminal.frontend.binary import where
from luminal.frontend.creation import position
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array, Extent, along
from luminal.frontend.movement import concat
from luminal.frontend.tensor import Tensor
from luminal.nn.module import Module
from luminal.nn.rotary_scaling import scaled_frequencies
from luminal.shape.expression import Expression, const


class Angles(NamedTuple):
    """cos and sin of every position's angles, (s, dims / 2): shared by all layers."""

    cos: Tensor
    sin: Tensor


class RotaryEmbedding(Module):
    """Turns q and k. `interleaved` pairs features (2i, 2i+1), else (i, i + dims / 2).

    `scaling`: None, or Hugging Face's `rope_scaling` of a kind in `luminal.nn.rotary_scaling`.
    `dims`: only the first so many features are turned, all by default.
    """

    def __init__(
        self,
        head_dim: int,
        theta: float = 10000.0,
        scaling: Mapping[str, Any] | None = None,
        interleaved: bool = False,
        dims: int | None = None,
    ) -> None:
        self.dims = head_dim if dims is None else dims
        if self.dims % 2 or not 0 < self.dims <= head_dim:
            raise ShapeError(
                f"rotary: {self.dims} features of head_dim {head_dim}; pairs need an even number "
                f"from 2 to {head_dim}"
            )
        self.scaled = scaled_frequencies(self.dims, theta, scaling)
        self.frequencies = self.scaled.frequencies
        self.interleaved = interleaved

    def angles(self, graph: Recorder, length: Extent, past: Extent = 0) -> Angles:
        """For the positions past .. past + length - 1."""
        count, first = graph.extents((length, past))
        positions = position(graph, first + along(0, count), (count,), float32)
        angles = positions.unsqueeze(-1) * self._frequencies(graph, first + count)
        factor = self.scaled.attention_factor
        if factor == 1:
            return Angles(angles.cos(), angles.sin())
        return Angles(angles.cos() * factor, angles.sin() * factor)

    def _frequencies(self, graph: Recorder, total: Expression) -> Array | Tensor:
        """Those of a text of `total` positions so far."""
        longer = self.scaled.longer
        if longer is None:
            return self.frequencies
        is_long = position(graph, total > longer.above, (), bool_)
        return where(is_long, longer.of(graph.constant(total, float32)), self.frequencies)

    def forward(self, x: Tensor, angles: Angles) -> Tensor:
        """x (..., s, head_dim), turned; same shape."""
        if x.extents[-1] != const(self.dims):
            turned = self.forward(x[..., : self.dims], angles)
            return concat((turned, x[..., self.dims :]), -1)
        half = self.dims // 2
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

"""Rotary position embedding: pairs of features turned by an angle that grows with the position.

Su et al., arXiv 2104.09864.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from luminal.base.dtypes import float32
from luminal.base.errors import ShapeError
from luminal.frontend.creation import position
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array, Extent, along
from luminal.frontend.movement.views import concat
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.nn.cache import Positions
from luminal.nn.module import Module
from luminal.nn.rotary_scaling import scaled_frequencies
from luminal.shape.expression import const


class Angles(NamedTuple):
    """cos and sin of every position's angles, shared by all layers.

    (s, dims / 2), or (..., 1, s, dims / 2) where each row has positions of its own.
    """

    cos: Tensor
    sin: Tensor


class RotaryEmbedding(Module):
    """Turns q and k. `interleaved` pairs features (2i, 2i+1), else (i, i + dims / 2).

    `scaling`: None, or Hugging Face's `rope_scaling` of a kind in `luminal.nn.rotary_scaling`.
    `dims`: only the first so many features are turned, all by default. `sections`: how many
    frequencies turn by each axis of positions that have several (see `angles_of_axes`).
    """

    def __init__(
        self,
        head_dim: int,
        theta: float = 10000.0,
        scaling: Mapping[str, Any] | None = None,
        interleaved: bool = False,
        dims: int | None = None,
        sections: Sequence[int] | None = None,
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
        if sections is not None and sum(sections) != self.dims // 2:
            raise ShapeError(
                f"rotary: sections {[*sections]} have {sum(sections)} frequencies; {self.dims} "
                f"features have {self.dims // 2}"
            )
        self.sections = sections

    def angles(self, graph: Recorder, length: Extent, positions: Positions = 0) -> Angles:
        """The angles of `length` positions from an Extent on, or of those of a Tensor (...,
        length).

        Where frequencies change with the length of a text, each row is a text.
        """
        if isinstance(positions, Tensor):
            places = positions.cast(float32).unsqueeze(-2).unsqueeze(-1)
            total = places.amax(-2, keepdim=True) + 1
        else:
            count, first = graph.extents((length, positions))
            places = position(graph, first + along(0, count), (count,), float32).unsqueeze(-1)
            total = graph.constant(first + count, float32)
        return self._turned(places * self._frequencies(total))

    def angles_of_axes(self, places: Tensor) -> Angles:
        """The angles at `places` (..., axes, s), integers: positions in time, rows and columns, of
        which each frequency has the one of its section (Wang et al., arXiv 2409.12191).
        """
        assert self.sections is not None
        axis = np.repeat(np.arange(len(self.sections)), self.sections)
        by_axis = places.cast(float32).index_select(-2, axis).mT
        if places.ndim > 2:
            by_axis = by_axis.unsqueeze(-3)  # the axis of heads
        total = places.cast(float32).amax().unsqueeze(-1) + 1
        return self._turned(by_axis * self._frequencies(total))

    def _turned(self, angles: Tensor) -> Angles:
        # Yarn's temperature of attention: q and k each get its root, here through cos and sin.
        factor = self.scaled.attention_factor
        if factor == 1:
            return Angles(angles.cos(), angles.sin())
        return Angles(angles.cos() * factor, angles.sin() * factor)

    def _frequencies(self, total: Tensor) -> Array | Tensor:
        """The frequencies of texts of `total` positions so far."""
        longer = self.scaled.longer
        if longer is None:
            return self.frequencies
        return where(total > longer.above, longer.of(total), self.frequencies)

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
        cos, sin = (part.unsqueeze(dim) for part in angles)
        # (a, b) turned is (a cos - b sin, b cos + a sin): the pair flipped, times (-1, 1) sin. One
        # expression over both halves, where slices and a concatenation would part the kernel.
        signs = position(x.graph, along(0, const(2)) * 2 - 1, (const(2),), float32)  # -1 and 1
        if dim == -2:
            signs = signs.unsqueeze(-1)
        turned = pairs * cos + pairs.flip(dim) * sin * signs
        return turned.flatten(-2).cast(x.dtype)

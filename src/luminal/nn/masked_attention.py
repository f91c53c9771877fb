"""Attention to all keys that the caller's mask lets through: self-attention and cross-attention."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from luminal.base.dtypes import float32
from luminal.frontend.handle import Extent
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.nn.cache import KVCache
from luminal.nn.linear import Linear
from luminal.nn.module import Module
from luminal.nn.rotary import Angles, RotaryEmbedding


class KeysValues(NamedTuple):
    """Keys and values of every head, each (..., heads, length, head_dim)."""

    keys: Tensor
    values: Tensor


class MaskedAttention(Module):
    """softmax(q k^T * scale + bias) v per head, between projections with biases or without.

    Vaswani et al., arXiv 1706.03762. `bias`: of all projections, where `key_bias` and `output_bias`
    do not say otherwise. `scale`: 1 / sqrt(head_dim) by default. `rotary` turns queries and keys of
    self-attention. `attended`: features of what is attended, by default those of x.
    """

    seen: list[Tensor] | None = None
    """Gets the weights of each call, (..., heads, q, k), where it is a list."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        head_dim: int,
        bias: bool = True,
        dtype: Any = float32,
        *,
        key_bias: bool | None = None,
        output_bias: bool | None = None,
        scale: float | None = None,
        rotary: RotaryEmbedding | None = None,
        attended: int | None = None,
    ) -> None:
        inner, memory = heads * head_dim, hidden if attended is None else attended
        self.heads, self.head_dim = heads, head_dim
        self.rotary = rotary
        self.scale = 1 / math.sqrt(head_dim) if scale is None else scale
        self.q_proj = Linear(hidden, inner, bias, dtype)
        self.k_proj = Linear(memory, inner, bias if key_bias is None else key_bias, dtype)
        self.v_proj = Linear(memory, inner, bias, dtype)
        self.o_proj = Linear(inner, hidden, bias if output_bias is None else output_bias, dtype)

    def keys_values(self, x: Tensor, places: Tensor | None = None) -> KeysValues:
        """The keys and values of what is attended, (..., k, hidden); keys know its `places`, which
        are added to it, and values do not.
        """
        placed = x if places is None else x + places
        return KeysValues(self._heads(self.k_proj(placed)), self._heads(self.v_proj(x)))

    def forward(
        self,
        x: Tensor,
        attended: KeysValues | None = None,
        visible: Tensor | None = None,
        bias: Tensor | None = None,
        cache: KVCache | None = None,
        past: Extent = 0,
        angles: Angles | None = None,
    ) -> Tensor:
        """x (..., q, hidden) to the same shape; x attends to itself if there is no `attended`.

        `visible` (bools) and `bias` (added to the scores) broadcast to (..., heads, q, k). With a
        cache, x has no batch: its keys and values are appended at `past`, all are attended.
        `angles` are those of `rotary` for positions past .. past + q - 1.
        """
        queries = self._heads(self.q_proj(x))
        keys, values = self.keys_values(x) if attended is None else attended
        if self.rotary is not None:
            angles = angles or self.rotary.angles(x.graph, x.extents[-2], past)
            queries, keys = self.rotary(queries, angles), self.rotary(keys, angles)
        if cache is not None:
            keys, values = cache.keep(keys, values, past)
        # Scaling the queries costs fewer products than scaling the scores.
        scores = queries * self.scale @ keys.mT
        if bias is not None:
            scores = scores + bias
        if visible is not None:
            scores = where(visible, scores, -math.inf)
        weights = scores.softmax(-1)
        if self.seen is not None:
            self.seen.append(weights)
        merged = (weights @ values).transpose(-2, -3).flatten(-2)
        return self.o_proj(merged)  # type: ignore[no-any-return]

    def _heads(self, x: Tensor) -> Tensor:
        """(..., s, heads * head_dim) to (..., heads, s, head_dim)."""
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(-2, -3)

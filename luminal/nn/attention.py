"""Grouped-query attention, causal, with a key and value cache that States hold between runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from luminal.dtypes import bool_, float32
from luminal.errors import ShapeError
from luminal.frontend.binary import where
from luminal.frontend.creation import position
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array, Extent, along
from luminal.frontend.tensor import Tensor
from luminal.hlir.state import State
from luminal.nn.linear import Linear
from luminal.nn.module import Module
from luminal.nn.norm import RMSNorm
from luminal.nn.rotary import Angles, RotaryEmbedding
from luminal.shape.expression import Expression, const


@dataclass(frozen=True, slots=True)
class KVCache:
    """One layer's keys and values of all positions so far, each (kv_heads, max_len, head_dim)."""

    keys: State
    values: State

    @classmethod
    def make(
        cls, kv_heads: int, max_len: int, head_dim: int, dtype: Any = float32, name: str = "cache"
    ) -> KVCache:
        """An empty cache."""
        shape = (kv_heads, max_len, head_dim)
        return cls(State(shape, dtype, name=f"{name}.k"), State(shape, dtype, name=f"{name}.v"))


class Attention(Module):
    """Causal attention of `heads` query heads; groups of them share one of `kv_heads` keys.

    Ainslie et al., arXiv 2305.13245. Names of the projections as in Hugging Face's Llama.
    `bias`: of q, k and v; `output_bias`: of the last projection, `bias` by default.
    `q_norm`, `k_norm`: over head_dim features each, or over those of all heads, as their shape is.
    `window`: a query sees the last `window` keys, its own included. `softcap` c bounds scores by
    `c * tanh(score / c)`. `scale`: 1 / sqrt(head_dim) by default. `slopes`, one a head: each times
    the distance of a key is taken from its score (Press et al., arXiv 2108.12409).
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        rotary: RotaryEmbedding | None = None,
        bias: bool = False,
        dtype: Any = float32,
        *,
        output_bias: bool | None = None,
        q_norm: RMSNorm | None = None,
        k_norm: RMSNorm | None = None,
        window: int | None = None,
        softcap: float | None = None,
        scale: float | None = None,
        slopes: Array | None = None,
    ) -> None:
        if heads % kv_heads:
            raise ShapeError(f"attention: {heads} heads do not divide among {kv_heads} kv_heads")
        if window is not None and window < 1:
            raise ShapeError(f"attention: window {window} hides all keys; it must be at least 1")
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.rotary = rotary
        self.q_proj = Linear(hidden, heads * head_dim, bias, dtype)
        self.k_proj = Linear(hidden, kv_heads * head_dim, bias, dtype)
        self.v_proj = Linear(hidden, kv_heads * head_dim, bias, dtype)
        last = bias if output_bias is None else output_bias
        self.o_proj = Linear(heads * head_dim, hidden, last, dtype)
        self.q_norm, self.k_norm = q_norm, k_norm
        self.window, self.softcap, self.slopes = window, softcap, slopes
        self.scale = 1 / math.sqrt(head_dim) if scale is None else scale

    def forward(
        self,
        x: Tensor,
        angles: Angles | None = None,
        cache: KVCache | None = None,
        past: Extent = 0,
    ) -> Tensor:
        """x (..., s, hidden) to the same shape. `angles` are for positions past .. past + s - 1.

        With a cache, x has no batch: its keys and values are appended at `past`, all are attended.
        """
        q = self._heads(self.q_proj(x), self.heads, self.q_norm)
        k = self._heads(self.k_proj(x), self.kv_heads, self.k_norm)
        v = self._heads(self.v_proj(x), self.kv_heads)
        if self.rotary is not None:
            angles = angles or self.rotary.angles(x.graph, x.extents[-2], past)
            q, k = self.rotary(q, angles), self.rotary(k, angles)
        first = x.graph.extent(past) if cache else x.graph.extent(0)
        if cache is not None:
            k, v = _appended(cache.keys, k, first), _appended(cache.values, v, first)
        return self.o_proj(_merged(self._attend(q, k, v, first)))  # type: ignore[no-any-return]

    def _heads(self, x: Tensor, count: int, norm: RMSNorm | None = None) -> Tensor:
        """(..., s, count * head_dim) to (..., count, s, head_dim)."""
        split = x.unflatten(-1, (count, self.head_dim))
        if norm is not None:
            each = norm.normalized_shape == (self.head_dim,)
            split = norm(split) if each else norm(x).unflatten(-1, (count, self.head_dim))
        return split.transpose(-2, -3)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, past: Expression) -> Tensor:
        """softmax(q k^T * scale) v per head; query i sees the keys up to past + i."""
        shared = self.kv_heads, self.heads // self.kv_heads
        grouped = (q * self.scale).unflatten(-3, shared)
        scores = grouped @ k.unsqueeze(-3).mT
        if self.softcap is not None:
            scores = soft_capped(scores, self.softcap)
        if self.slopes is not None:  # the query's own position changes no softmax
            keys = scores.graph.arange(scores.extents[-1], dtype=scores.dtype)
            scores = scores + keys * self.slopes.reshape(*shared, 1, 1).astype(np.float32)
        weights = _masked(scores, past, self.window).softmax(-1)
        return (weights @ v.unsqueeze(-3)).flatten(-4, -3)


def alibi_slopes(heads: int) -> Array:
    """Slopes of `heads` heads, float64: powers of 2 ** (-8 / n), n the greatest power of 2 below.

    Heads beyond n take every other power of 2 ** (-4 / n). Press et al., arXiv 2108.12409.
    """
    most = 1 << (heads.bit_length() - 1)
    first = 2.0 ** (-8 / most * np.arange(1, most + 1))
    further = 2.0 ** (-4 / most * np.arange(1, 2 * (heads - most), 2))
    return np.concatenate((first, further))


def causal_mask(
    graph: Recorder, queries: Extent, keys: Extent, past: Extent = 0, window: int | None = None
) -> Tensor:
    """(queries, keys) bools: query i, at position past + i, sees the keys at 0 .. past + i.

    `window`: only the last so many of them.
    """
    rows, columns, first = graph.extents((queries, keys, past))
    own, key = first + along(0, rows), along(1, columns)
    visible = own >= key
    if window is not None:
        visible = visible & (key + window > own)
    return position(graph, visible, (rows, columns), bool_)


def soft_capped(x: Tensor, cap: float) -> Tensor:
    """`cap * tanh(x / cap)`: within -cap .. cap, and x itself near 0."""
    return (x * (1 / cap)).tanh() * cap


def _masked(scores: Tensor, past: Expression, window: int | None) -> Tensor:
    """`scores` (..., queries, keys), -inf where the query does not see the key."""
    queries, keys = scores.extents[-2:]
    if queries == const(1) and keys == past + 1 and window is None:
        return scores  # one query, which sees all keys
    return where(causal_mask(scores.graph, queries, keys, past, window), scores, -math.inf)


def _appended(state: State, new: Tensor, past: Expression) -> Tensor:
    """The cached positions 0 .. past - 1, then `new`; the State holds them after the run."""
    graph, count = new.graph, new.extents[-2]
    filled = graph.read(state).slice_scatter(new.cast(state.dtype), 1, past)
    graph.assign(state, filled)
    return filled[:, : past + count].cast(new.dtype)


def _merged(x: Tensor) -> Tensor:
    """(..., heads, s, head_dim) to (..., s, heads * head_dim)."""
    return x.transpose(-2, -3).flatten(-2)

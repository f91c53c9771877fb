"""Grouped-query attention, causal; a cache may keep keys and values between runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from luminal.dtypes import bool_, float32
from luminal.errors import ShapeError
from luminal.frontend.binary import where
from luminal.frontend.creation import position
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array, Extent, along, is_tensor
from luminal.frontend.tensor import Tensor
from luminal.nn.cache import Cache, KVCache, Positions
from luminal.nn.linear import Linear
from luminal.nn.module import Module
from luminal.nn.norm import HeadNorm, RMSNorm
from luminal.nn.rotary import Angles, RotaryEmbedding
from luminal.shape.expression import const


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
        q_norm: RMSNorm | HeadNorm | None = None,
        k_norm: RMSNorm | HeadNorm | None = None,
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
        cache: Cache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """x (..., s, hidden) to the same shape. `angles` are for these positions.

        With a cache, which keeps keys and values, a query at position p sees those at 0 .. p;
        without one, those of the rows of x up to its own.
        """
        q = self._heads(self.q_proj(x), self.heads, self.q_norm)
        k = self._heads(self.k_proj(x), self.kv_heads, self.k_norm)
        v = self._heads(self.v_proj(x), self.kv_heads)
        if self.rotary is not None:
            angles = angles or self.rotary.angles(x.graph, x.extents[-2], positions)
            q, k = self.rotary(q, angles), self.rotary(k, angles)
        if cache is None:
            attended = self.attend(q, k, v)
        else:
            attended = cache.attend(self, q, k, v, positions)
        return self.o_proj(_merged(attended))  # type: ignore[no-any-return]

    def make_cache(
        self, max_len: int, dtype: Any = float32, name: str = "cache", batch: int | None = None
    ) -> KVCache:
        """An empty cache for `max_len` positions, of one text or a batch of them."""
        return KVCache.make(self.kv_heads, max_len, self.head_dim, dtype, name, batch)

    def _heads(self, x: Tensor, count: int, norm: RMSNorm | HeadNorm | None = None) -> Tensor:
        """(..., s, count * head_dim) to (..., count, s, head_dim)."""
        split = x.unflatten(-1, (count, self.head_dim))
        if norm is not None:
            each = norm.normalized_shape == (self.head_dim,)
            split = norm(split) if each else norm(x).unflatten(-1, (count, self.head_dim))
        return split.transpose(-2, -3)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions = 0) -> Tensor:
        """softmax(q k^T * scale) v per head, (..., heads, queries, head_dim).

        k and v (..., kv_heads, keys, head_dim) lie at positions 0, 1, 2 ...; a query sees those up
        to its own position: the queries follow each other from `positions` on, or it is a Tensor
        (..., queries).
        """
        shared = self.kv_heads, self.heads // self.kv_heads
        grouped = (q * self.scale).unflatten(-3, shared)
        scores = grouped @ k.unsqueeze(-3).mT
        if self.softcap is not None:
            scores = soft_capped(scores, self.softcap)
        if self.slopes is not None:  # the query's own position changes no softmax
            keys = scores.graph.arange(scores.extents[-1], dtype=scores.dtype)
            scores = scores + keys * self.slopes.reshape(*shared, 1, 1).astype(np.float32)
        weights = _masked(scores, positions, self.window).softmax(-1)
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
    graph: Recorder,
    queries: Extent,
    keys: Extent,
    positions: Positions = 0,
    window: int | None = None,
) -> Tensor:
    """(queries, keys) bools: query i, at `positions` + i, sees the keys up to its own position.

    (..., queries, keys) for a Tensor (..., queries). `window`: only the last so many keys.
    """
    rows, columns = graph.extents((queries, keys))
    if isinstance(positions, Tensor):
        key: Any = graph.arange(columns, dtype=positions.dtype)
        own: Any = positions.unsqueeze(-1)
    else:
        own, key = graph.extent(positions) + along(0, rows), along(1, columns)
    visible = own >= key
    if window is not None:
        visible = visible & (key + window > own)
    return visible if is_tensor(visible) else position(graph, visible, (rows, columns), bool_)


def soft_capped(x: Tensor, cap: float) -> Tensor:
    """`cap * tanh(x / cap)`: within -cap .. cap, and x itself near 0."""
    return (x * (1 / cap)).tanh() * cap


def _masked(scores: Tensor, positions: Positions, window: int | None) -> Tensor:
    """`scores` (..., kv_heads, group, queries, keys), -inf where the query does not see the key."""
    graph, (queries, keys) = scores.graph, scores.extents[-2:]
    if not isinstance(positions, Tensor):
        if queries == const(1) and keys == graph.extent(positions) + 1 and window is None:
            return scores  # one query, which sees all keys
        return where(causal_mask(graph, queries, keys, positions, window), scores, -math.inf)
    mask = causal_mask(graph, queries, keys, positions, window)
    return where(mask.unsqueeze(-3).unsqueeze(-3), scores, -math.inf)


def _merged(x: Tensor) -> Tensor:
    """(..., heads, s, head_dim) to (..., s, heads * head_dim)."""
    return x.transpose(-2, -3).flatten(-2)

"""Grouped-query attention, causal; a cache may keep keys and values between runs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from luminal.base.dtypes import bool_, float32
from luminal.base.errors import ShapeError
from luminal.base.records import dataclass
from luminal.frontend.creation import position
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Array, Extent, along, is_tensor
from luminal.frontend.pointwise.binary import maximum, where
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.cache import Cache, KVCache, Positions
from luminal.nn.linear import Linear
from luminal.nn.module import Module
from luminal.nn.norm import HeadNorm, RMSNorm
from luminal.nn.rotary import Angles, RotaryEmbedding
from luminal.shape.expression import const


class CausalAttention(Module):
    """What causal attentions share: which keys a query sees, and how it weighs them.

    `heads` of queries, groups of which share one of `kv_heads` of keys (Ainslie et al., arXiv
    2305.13245). `window`: a query sees the last `window` keys, its own included; `chunk`: positions
    lie in chunks of so many, and it sees those of its own. `softcap` c bounds scores by
    `c * tanh(score / c)`. `slopes`, one a head: each times the distance of a key is taken from its
    score (Press et al., arXiv 2108.12409). `sinks`: each head has the score of a key without a
    value, which takes a share of the weights (Xiao et al., arXiv 2309.17453).
    """

    seen: list[Tensor] | None = None
    """Gets the weights of each call, (..., heads, queries, keys), where it is a list."""

    def __init__(
        self,
        heads: int,
        kv_heads: int,
        scale: float,
        dtype: Any = float32,
        *,
        window: int | None = None,
        chunk: int | None = None,
        softcap: float | None = None,
        slopes: Array | None = None,
        sinks: bool = False,
    ) -> None:
        if heads % kv_heads:
            raise ShapeError(f"attention: {heads} heads do not divide among {kv_heads} kv_heads")
        for name, size in (("window", window), ("chunk", chunk)):
            if size is not None and size < 1:
                raise ShapeError(f"attention: {name} {size} hides all keys; it must be at least 1")
        self.heads, self.kv_heads, self.scale = heads, kv_heads, scale
        self.window, self.chunk, self.softcap, self.slopes = window, chunk, softcap, slopes
        self.sinks = init.parameter((heads,), init.zeros, dtype) if sinks else None

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Positions = 0,
        spans: Tensor | None = None,
    ) -> Tensor:
        """softmax(q k^T * scale) v per head, (..., heads, queries, features of v).

        k and v (..., kv_heads, keys, features) lie at positions 0, 1, 2 ...; a query sees those up
        to its own position: the queries follow each other from `positions` on, or it is a Tensor
        (..., queries). `spans` (..., 2, queries): a query also sees later keys from the first
        number up to before the second, as a part of an image sees all of it within the window.
        """
        # Heads that share keys are an axis of their own, along which keys lack it: nothing is
        # repeated in memory, and each key is read once for its group.
        shared = self.kv_heads, self.heads // self.kv_heads
        # The queries are scaled, not the scores: there are fewer of them.
        grouped = (q * self.scale).cast(k.dtype).cast(q.dtype).unflatten(-3, shared)
        k, v = k.cast(q.dtype), v.cast(q.dtype)
        scores = grouped @ k.unsqueeze(-3).mT
        if self.softcap is not None:
            # Before the mask: the tanh of a hidden key's -inf would be -1, and the key would be
            # seen again.
            scores = soft_capped(scores, self.softcap)
        if self.slopes is not None:  # the query's own position changes no softmax
            keys = scores.graph.arange(scores.extents[-1], dtype=scores.dtype)
            scores = scores + keys * self.slopes.reshape(*shared, 1, 1).astype(np.float32)
        weights = self._weights(_masked(scores, positions, self.window, self.chunk, spans))
        if self.seen is not None:
            self.seen.append(weights.flatten(-4, -3))
        return (weights @ v.unsqueeze(-3)).flatten(-4, -3)

    def _weights(self, scores: Tensor) -> Tensor:
        """A softmax over the keys and, if there is one, the sink."""
        if self.sinks is None:
            return scores.softmax(-1)
        sink = self.read(self.sinks, scores).unflatten(0, (self.kv_heads, -1))
        sink = sink.unsqueeze(-1).unsqueeze(-1)
        # The sink is one more score of the softmax, whose value is 0: only the sum below knows it.
        top = maximum(scores.amax(-1, keepdim=True), sink)
        shares = (scores - top).exp()
        weights: Tensor = shares / (shares.sum(-1, keepdim=True) + (sink - top).exp())
        return weights


@dataclass(frozen=True, slots=True)
class Temperature:
    """Queries at position p are times `1 + scale * log(1 + floor((p + start) / length))`.

    Nakanishi, arXiv 2501.19399.
    """

    scale: float
    length: int
    start: int = 0

    def of(self, q: Tensor, positions: Positions) -> Tensor:
        """q (..., heads, s, features), scaled."""
        if isinstance(positions, Tensor):
            own_positions = positions.unsqueeze(-2)
        else:
            own_positions = q.graph.arange(q.extents[-2]) + q.graph.constant(positions)
        steps = ((own_positions + self.start) // self.length).cast(float32)
        return q * ((steps + 1).log() * self.scale + 1).unsqueeze(-1)


class Attention(CausalAttention):
    """Causal attention. Names of the projections as in Hugging Face's Llama.

    `bias`: of q, k and v; `output_bias`: of the last projection, `bias` by default. `q_norm`,
    `k_norm`, `v_norm`: over head_dim features each, or over those of all heads, as their shape is.
    `turned_first`: q and k are turned before norms over head_dim. `limit` clamps q, k and v after
    these. `key_values`: values are the keys before their norm and turn. `scale`: 1 / sqrt(head_dim)
    by default. `gate`: what is attended is times the sigmoid of a projection of x (Qiu et al.,
    arXiv 2505.06708). `options`: CausalAttention's.
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
        limit: float | None = None,
        q_norm: RMSNorm | HeadNorm | None = None,
        k_norm: RMSNorm | HeadNorm | None = None,
        v_norm: RMSNorm | None = None,
        turned_first: bool = False,
        key_values: bool = False,
        scale: float | None = None,
        temperature: Temperature | None = None,
        gate: bool = False,
        **options: Any,
    ) -> None:
        scale = 1 / math.sqrt(head_dim) if scale is None else scale
        super().__init__(heads, kv_heads, scale, dtype, **options)
        self.head_dim, self.rotary = head_dim, rotary
        self.q_proj = Linear(hidden, heads * head_dim, bias, dtype)
        self.k_proj = Linear(hidden, kv_heads * head_dim, bias, dtype)
        values = None if key_values else Linear(hidden, kv_heads * head_dim, bias, dtype)
        self.v_proj = values
        self.gate_proj = Linear(hidden, heads * head_dim, bias, dtype) if gate else None
        last = bias if output_bias is None else output_bias
        self.o_proj = Linear(heads * head_dim, hidden, last, dtype)
        self.limit, self.temperature, self.turned_first = limit, temperature, turned_first
        self.q_norm, self.k_norm, self.v_norm = q_norm, k_norm, v_norm

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
        # A norm with weights and a turn do not commute, and most models norm first.
        q_norm, k_norm = (None, None) if self.turned_first else (self.q_norm, self.k_norm)
        q = self._heads(self.q_proj(x), self.heads, q_norm)
        keys = self.k_proj(x)
        values = keys if self.v_proj is None else self.v_proj(x)
        k = self._heads(keys, self.kv_heads, k_norm)
        v = self._heads(values, self.kv_heads, self.v_norm)
        if self.rotary is not None:
            # A decoder makes the angles once for all of its layers; only a layer that is called
            # alone makes its own.
            angles = angles or self.rotary.angles(x.graph, x.extents[-2], positions)
            q, k = self.rotary(q, angles), self.rotary(k, angles)
        if self.turned_first and self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.temperature is not None:
            q = self.temperature.of(q, positions)
        attended = attended_by(self, q, k, v, cache, positions)
        if self.gate_proj is not None:
            attended = attended * self.gate_proj(x).sigmoid()
        return self.o_proj(attended)  # type: ignore[no-any-return]

    def make_cache(
        self, max_len: int, dtype: Any = float32, name: str = "cache", batch: int | None = None
    ) -> KVCache:
        """An empty cache for `max_len` positions, of one text or a batch of them."""
        return KVCache.make(self.kv_heads, max_len, self.head_dim, dtype, name, batch)

    def _heads(self, x: Tensor, count: int, norm: RMSNorm | HeadNorm | None = None) -> Tensor:
        """(..., s, count * head_dim) to (..., count, s, head_dim)."""
        split = x.unflatten(-1, (count, self.head_dim))
        if norm is not None:
            # Models differ in whether a norm sees one head or all: its shape tells.
            per_head = norm.normalized_shape == (self.head_dim,)
            split = norm(split) if per_head else norm(x).unflatten(-1, (count, self.head_dim))
        if self.limit is not None:
            split = split.clamp(-self.limit, self.limit)
        return split.transpose(-2, -3)


def attended_by(
    attention: CausalAttention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cache: Cache | None,
    positions: Positions,
) -> Tensor:
    """What q attends, (..., s, heads * features of v)."""
    if cache is None:
        attended = attention.attend(q, k, v)
    else:
        attended = cache.attend(attention, q, k, v, positions)
    return attended.transpose(-2, -3).flatten(-2)


def alibi_slopes(heads: int) -> Array:
    """Slopes of `heads` heads, float64: powers of 2 ** (-8 / n), n the greatest power of 2 below.

    Heads beyond n take every other power of 2 ** (-4 / n). Press et al., arXiv 2108.12409.
    """
    # The paper's numbers for powers of 2; its code fills other counts from those of twice as many.
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
    chunk: int | None = None,
    spans: Tensor | None = None,
) -> Tensor:
    """(queries, keys) bools: query i, at `positions` + i, sees the keys up to its own position.

    (..., queries, keys) for a Tensor (..., queries). `window`: only the last so many keys; `chunk`:
    only those of its own chunk of so many positions. `spans`: see `CausalAttention.attend`.
    """
    rows, columns = graph.extents((queries, keys))
    if spans is not None and not isinstance(positions, Tensor):
        # Spans are data, and so is then what is compared beside them.
        positions = graph.arange(rows) + graph.constant(positions)
    if isinstance(positions, Tensor):
        key: Any = graph.arange(columns, dtype=positions.dtype)
        query_positions: Any = positions.unsqueeze(-1)
    else:
        query_positions, key = graph.extent(positions) + along(0, rows), along(1, columns)
    visible = query_positions >= key
    if spans is not None:
        first, end = (spans[..., side, :].unsqueeze(-1) for side in (0, 1))
        visible = visible | ((key >= first) & (key < end))
    if window is not None:
        visible = visible & (key + window > query_positions)
    if chunk is not None:
        # The first position of the query's own chunk.
        visible = visible & (key >= query_positions // chunk * chunk)
    return visible if is_tensor(visible) else position(graph, visible, (rows, columns), bool_)


def soft_capped(x: Tensor, cap: float) -> Tensor:
    """`cap * tanh(x / cap)`: within -cap .. cap, and x itself near 0."""
    return (x * (1 / cap)).tanh() * cap


def _masked(
    scores: Tensor,
    positions: Positions,
    window: int | None,
    chunk: int | None,
    spans: Tensor | None,
) -> Tensor:
    """`scores` (..., kv_heads, group, queries, keys), -inf where the query does not see the key."""
    graph, (queries, keys) = scores.graph, scores.extents[-2:]
    all_seen = window is None and chunk is None and spans is None
    # Positions that are Expressions leave a mask that is a condition on loops; those in a Tensor
    # are compared element by element.
    if not isinstance(positions, Tensor):
        # A step of generation needs no mask, and its kernel no comparison.
        if queries == const(1) and keys == graph.extent(positions) + 1 and all_seen:
            return scores  # one query, which sees all keys
        mask = causal_mask(graph, queries, keys, positions, window, chunk, spans)
        return where(mask, scores, -math.inf)
    mask = causal_mask(graph, queries, keys, positions, window, chunk, spans)
    return where(mask.unsqueeze(-3).unsqueeze(-3), scores, -math.inf)

"""Grouped-query attention, causal, with a key and value cache that States hold between runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from luminal.dtypes import bool_, float32
from luminal.errors import ShapeError
from luminal.frontend.binary import where
from luminal.frontend.creation import position
from luminal.frontend.graph import Recorder
from luminal.frontend.handle import Extent, along
from luminal.frontend.tensor import Tensor
from luminal.hlir.state import State
from luminal.nn.linear import Linear
from luminal.nn.module import Module
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
    ) -> None:
        if heads % kv_heads:
            raise ShapeError(f"attention: {heads} heads do not divide among {kv_heads} kv_heads")
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.rotary = rotary
        self.q_proj = Linear(hidden, heads * head_dim, bias, dtype)
        self.k_proj = Linear(hidden, kv_heads * head_dim, bias, dtype)
        self.v_proj = Linear(hidden, kv_heads * head_dim, bias, dtype)
        self.o_proj = Linear(heads * head_dim, hidden, bias, dtype)

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
        q = self._heads(self.q_proj(x), self.heads)
        k = self._heads(self.k_proj(x), self.kv_heads)
        v = self._heads(self.v_proj(x), self.kv_heads)
        if self.rotary is not None:
            angles = angles or self.rotary.angles(x.graph, x.extents[-2], past)
            q, k = self.rotary(q, angles), self.rotary(k, angles)
        first = x.graph.extent(past) if cache else x.graph.extent(0)
        if cache is not None:
            k, v = _appended(cache.keys, k, first), _appended(cache.values, v, first)
        return self.o_proj(_merged(self._attend(q, k, v, first)))  # type: ignore[no-any-return]

    def _heads(self, x: Tensor, count: int) -> Tensor:
        """(..., s, count * head_dim) to (..., count, s, head_dim)."""
        return x.unflatten(-1, (count, self.head_dim)).transpose(-2, -3)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, past: Expression) -> Tensor:
        """softmax(q k^T / sqrt(head_dim)) v per head; query i sees the keys up to past + i."""
        group = self.heads // self.kv_heads
        grouped = (q * (1 / math.sqrt(self.head_dim))).unflatten(-3, (self.kv_heads, group))
        weights = _masked(grouped @ k.unsqueeze(-3).mT, past).softmax(-1)
        return (weights @ v.unsqueeze(-3)).flatten(-4, -3)


def causal_mask(graph: Recorder, queries: Extent, keys: Extent, past: Extent = 0) -> Tensor:
    """(queries, keys) bools: query i, at position past + i, sees the keys at 0 .. past + i."""
    rows, columns, first = graph.extents((queries, keys, past))
    visible = first + along(0, rows) >= along(1, columns)
    return position(graph, visible, (rows, columns), bool_)


def _masked(scores: Tensor, past: Expression) -> Tensor:
    """`scores` (..., queries, keys), -inf where the query does not see the key."""
    queries, keys = scores.extents[-2:]
    if queries == const(1) and keys == past + 1:
        return scores  # one query, which sees all keys
    return where(causal_mask(scores.graph, queries, keys, past), scores, -math.inf)


def _appended(state: State, new: Tensor, past: Expression) -> Tensor:
    """The cached positions 0 .. past - 1, then `new`; the State holds them after the run."""
    graph, count = new.graph, new.extents[-2]
    filled = graph.read(state).slice_scatter(new.cast(state.dtype), 1, past)
    graph.assign(state, filled)
    return filled[:, : past + count].cast(new.dtype)


def _merged(x: Tensor) -> Tensor:
    """(..., heads, s, head_dim) to (..., s, heads * head_dim)."""
    return x.transpose(-2, -3).flatten(-2)

"""Multi-head latent attention: keys and values of all heads are products of one short vector.

DeepSeek-AI, arXiv 2405.04434, section 2.1.
"""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.movement.views import concat
from luminal.frontend.tensor import Tensor
from luminal.memory.state import State
from luminal.nn.attention import CausalAttention, attended_by
from luminal.nn.cache import Cache, KVCache, Positions
from luminal.nn.linear import Linear
from luminal.nn.norm import RMSNorm
from luminal.nn.rotary import Angles, RotaryEmbedding


class LatentAttention(CausalAttention):
    """A latent vector of `kv_rank` features for each position, and `rotary` features of its key.

    What makes keys of the latent vector multiplies the queries instead, what makes values of it
    multiplies what was attended: heads share one head of keys, and only it is cached. Queries have
    `plain` features that are not turned; `q_rank`: they come of a short vector too. `bias`: of the
    first and the last projection. Names as in Hugging Face's DeepSeek-V3.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        rotary: RotaryEmbedding,
        plain: int,
        kv_rank: int,
        value_dim: int,
        q_rank: int | None = None,
        bias: bool = False,
        dtype: Any = float32,
        *,
        scale: float,
        eps: float = 1e-6,
    ) -> None:
        super().__init__(heads, 1, scale, dtype)
        self.rotary, self.plain, self.kv_rank, self.value_dim = rotary, plain, kv_rank, value_dim
        width = heads * (plain + rotary.dims)
        self.q_proj = None if q_rank else Linear(hidden, width, False, dtype)
        self.q_a_proj = Linear(hidden, q_rank, bias, dtype) if q_rank else None
        self.q_a_layernorm = RMSNorm(q_rank, eps, dtype=dtype) if q_rank else None
        self.q_b_proj = Linear(q_rank, width, False, dtype) if q_rank else None
        self.kv_a_proj_with_mqa = Linear(hidden, kv_rank + rotary.dims, bias, dtype)
        self.kv_a_layernorm = RMSNorm(kv_rank, eps, dtype=dtype)
        self.kv_b_proj = Linear(kv_rank, heads * (plain + value_dim), False, dtype)
        self.o_proj = Linear(heads * value_dim, hidden, bias, dtype)

    def forward(
        self,
        x: Tensor,
        angles: Angles | None = None,
        cache: Cache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """x (..., s, hidden) to the same shape; see `Attention`."""
        angles = angles or self.rotary.angles(x.graph, x.extents[-2], positions)
        both = self.read(self.kv_b_proj.weight, x).unflatten(0, (self.heads, -1))
        # q (W c) = (q W) c: with W on the queries' side the keys of all heads are the one vector c,
        # so the cache holds one head instead of all.
        of_keys, of_values = both[:, : self.plain], both[:, self.plain :]
        q = self._queries(x).unflatten(-1, (self.heads, -1)).transpose(-2, -3)
        turned = self.rotary(q[..., self.plain :], angles)
        # Turned features cannot be absorbed (their turn depends on the position): they get a key of
        # their own.
        q = concat((q[..., : self.plain] @ of_keys, turned), -1)
        latent, key = (
            self.kv_a_proj_with_mqa(x).unsqueeze(-3).split((self.kv_rank, self.rotary.dims), -1)
        )
        latent, key = self.kv_a_layernorm(latent), self.rotary(key, angles)
        attended = attended_by(self, q, key, latent, cache, positions)
        values = attended.unflatten(-1, (self.heads, -1)).transpose(-2, -3) @ of_values.mT
        return self.o_proj(values.transpose(-2, -3).flatten(-2))  # type: ignore[no-any-return]

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Positions = 0,
        spans: Tensor | None = None,
    ) -> Tensor:
        """k: the turned features; v: the latent vectors, which are the other features of keys."""
        return super().attend(q, concat((v, k), -1), v, positions, spans)

    def make_cache(
        self, max_len: int, dtype: Any = float32, name: str = "cache", batch: int | None = None
    ) -> KVCache:
        """An empty cache for `max_len` positions, of one text or a batch of them."""
        rows = () if batch is None else (batch,)
        keys, values = (
            State((*rows, 1, max_len, size), dtype, name=f"{name}.{last}")
            for size, last in ((self.rotary.dims, "k"), (self.kv_rank, "v"))
        )
        return KVCache(keys, values)

    def _queries(self, x: Tensor) -> Tensor:
        """The queries of x, (..., s, heads * features)."""
        if self.q_proj is not None:
            return self.q_proj(x)  # type: ignore[no-any-return]
        return self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))  # type: ignore[misc, no-any-return]

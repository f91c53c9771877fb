"""Linear attention whose memory decays by one rate a head: lightning attention.

Qin et al., arXiv 2401.04658; with a norm and a gate as in MiniMax-01, arXiv 2501.08313.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from luminal.base.dtypes import float32
from luminal.frontend.handle import Array
from luminal.frontend.tensor import Tensor
from luminal.nn.cache import Positions
from luminal.nn.feed_forward import activation_of
from luminal.nn.linear import Linear
from luminal.nn.norm import RMSNorm
from luminal.nn.recurrent_cache import RecurrentCache, RecurrentLayer, stepped


class LightningAttention(RecurrentLayer):
    """Each of `heads` has a memory, (head_dim, head_dim), that a step multiplies by exp(-rate).

    Keys, queries and values are activated, the answers of all heads normed together and gated.
    `rates`: (heads,). Names as in Hugging Face's MiniMax, but for `in_proj`.
    """

    def __init__(
        self,
        hidden: int,
        head_dim: int,
        rates: Array,
        activation: str = "silu",
        eps: float = 1e-6,
        dtype: Any = float32,
    ) -> None:
        self.heads, self.head_dim = len(rates), head_dim
        self.activation, self.kept = activation_of(activation), np.exp(-rates).astype(np.float32)
        inner = self.heads * head_dim
        self.in_proj = Linear(hidden, 3 * inner, False, dtype)
        self.output_gate = Linear(hidden, inner, False, dtype)
        self.norm = RMSNorm(inner, eps, dtype=dtype)
        self.out_proj = Linear(inner, hidden, False, dtype)
        self.shapes = ((self.heads, head_dim, head_dim),)

    def forward(
        self,
        x: Tensor,
        angles: Any = None,
        cache: RecurrentCache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """x (..., s, hidden) to the same shape."""
        (memory,) = self.before(cache, x, positions)
        mixed = self.activation(self.in_proj(x)).unflatten(-1, (self.heads, 3, self.head_dim))
        kept = self.kept[:, None, None]

        def step(memory: Tensor, xs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            q, k, v = xs
            memory = memory * kept + k.unsqueeze(-1) * v.unsqueeze(-2)
            return memory, (memory * q.unsqueeze(-1)).sum(-2)

        xs = [mixed[..., number, :] for number in range(3)]
        memory, y = stepped(step, memory, xs, x.ndim - 2)
        if cache is not None:
            cache.keep((memory,))
        y = self.norm(y.flatten(-2)) * self.output_gate(x).sigmoid()
        return self.out_proj(y)  # type: ignore[no-any-return]

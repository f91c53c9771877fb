"""RWKV-7: a memory that decays, forgets and is corrected by vectors. Peng et al., arXiv 2503.14456.

Names as in the flash-linear-attention library's RWKV7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.movement.views import concat
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.linear import Linear
from luminal.nn.module import Module
from luminal.nn.norm import GroupNorm
from luminal.nn.recurrent_cache import stepped

_SLOWEST = math.exp(-0.5)  # decays lie between exp(-it) and 1


def shifted(x: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """What the position before has more than each of x (..., s, hidden), and the new `last`.

    `last` (..., 1, hidden) is at the position before the first.
    """
    seen = concat((last, x), -2)
    return seen[..., :-1, :] - x, seen[..., -1:, :]


class LowRank(Module):
    """`out(activation(into(x)))` through `rank` features."""

    def __init__(
        self,
        hidden: int,
        rank: int,
        activation: Callable[[Tensor], Tensor] | None = None,
        bias: bool = True,
        dtype: Any = float32,
    ) -> None:
        self.activation = activation
        self.into = Linear(hidden, rank, False, dtype)
        self.out = Linear(rank, hidden, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden) to the same shape."""
        inner = self.into(x)
        return self.out(inner if self.activation is None else self.activation(inner))  # type: ignore[no-any-return]


class TimeMix(Module):
    """`ranks`: of what makes decays, rates of correction, shares of the first values, gates.

    The first layer, which has the first values, has no share of them: its rank is None.
    """

    def __init__(
        self,
        hidden: int,
        head_dim: int,
        ranks: tuple[int, int, int | None, int],
        eps: float = 1e-5,
        dtype: Any = float32,
    ) -> None:
        self.heads, self.head_dim = hidden // head_dim, head_dim
        decay, rate, share, gate = ranks
        for name in "rwkvag":
            setattr(self, f"x_{name}", init.parameter((hidden,), init.zeros, dtype))
        self.k_k = init.parameter((hidden,), init.ones, dtype)
        self.k_a = init.parameter((hidden,), init.ones, dtype)
        self.r_k = init.parameter((self.heads, head_dim), init.zeros, dtype)
        self.r_proj, self.k_proj, self.v_proj, self.o_proj = (
            Linear(hidden, hidden, False, dtype) for _ in range(4)
        )
        self.w_lora = LowRank(hidden, decay, Tensor.tanh, dtype=dtype)
        self.a_lora = LowRank(hidden, rate, dtype=dtype)
        self.v_lora = LowRank(hidden, share, dtype=dtype) if share is not None else None
        self.g_lora = LowRank(hidden, gate, Tensor.sigmoid, bias=False, dtype=dtype)
        self.g_norm = GroupNorm(self.heads, hidden, head_dim * eps, dtype=dtype)

    def forward(
        self, x: Tensor, last: Tensor, memory: Tensor, first: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """x (..., s, hidden), what came before, and the first layer's values, None in itself.

        Gives the same shape, what comes before the next positions, and the first values.
        """
        step_back, last = shifted(x, last)
        r, w, k, v, a, g = (
            x + step_back * self.read(getattr(self, f"x_{name}"), x) for name in "rwkvag"
        )
        decay = (self.w_lora(w).sigmoid() * -_SLOWEST).exp()
        r, k, rate = self.r_proj(r), self.k_proj(k), self.a_lora(a).sigmoid()
        values = self.v_proj(v)
        first = values if first is None else first
        if self.v_lora is not None:
            values = values + (first - values) * self.v_lora(v).sigmoid()
        # What the memory says of this direction is taken away before the value is put there.
        removed = self._heads(k * self.read(self.k_k, x))
        length = removed.square().sum(-1, keepdim=True).sqrt()
        removed = removed / length.clamp(min=1e-12)
        k = self._heads(k * ((rate - 1) * self.read(self.k_a, x) + 1))
        r, decay, rate, v = (self._heads(vectors) for vectors in (r, decay, rate, values))

        # Outer products as broadcasts: a step is one kernel over the memory, (value, key) features.
        def step(memory: Tensor, xs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            r, decay, k, v, removed, put = (vectors.unsqueeze(-2) for vectors in xs)
            said = (memory * removed).sum(-1, keepdim=True)
            memory = memory * decay - said * put + v.mT * k
            return memory, (memory * r).sum(-1)

        memory, y = stepped(step, memory, (r, decay, k, v, removed, removed * rate), x.ndim - 2)
        flat = y.flatten(-2)
        normed = self.g_norm(flat.reshape(-1, flat.extents[-1])).reshape(flat.extents)
        # The position's own value once more, past the memory.
        bonus = (r * k * self.read(self.r_k, x)).sum(-1, keepdim=True) * v
        gated = (normed + bonus.flatten(-2)) * self.g_lora(g)
        return self.o_proj(gated), last, memory, first

    def _heads(self, x: Tensor) -> Tensor:
        """x by heads, (..., heads, head_dim)."""
        return x.unflatten(-1, (self.heads, self.head_dim))


class ChannelMix(Module):
    """`value(relu(key(x)) ** 2)` of x mixed with the position before."""

    def __init__(self, hidden: int, inner: int, dtype: Any = float32) -> None:
        self.x_k = init.parameter((hidden,), init.zeros, dtype)
        self.key = Linear(hidden, inner, False, dtype)
        self.value = Linear(inner, hidden, False, dtype)

    def forward(self, x: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """x (..., s, hidden) and what came before; the same shape, and what comes before next."""
        step_back, last = shifted(x, last)
        mixed = x + step_back * self.read(self.x_k, x)
        return self.value(self.key(mixed).relu().square()), last

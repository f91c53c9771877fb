"""Linear attention whose memory is corrected, not only added to: the gated delta rule.

Yang et al., arXiv 2412.06464.
"""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.cache import Positions
from luminal.nn.causal_convolution import CausalConvolution
from luminal.nn.linear import Linear
from luminal.nn.norm import RMSNorm
from luminal.nn.recurrent_cache import RecurrentCache, RecurrentLayer, stepped


class GatedDeltaNet(RecurrentLayer):
    """`key_heads` of queries and keys, each of a group of the `value_heads`.

    A head's memory, (key_dim, value_dim), decays; what it says of a key is corrected towards the
    value; it is asked by the query. Queries, keys and values are convolved before, the answer is
    normed and gated. Names as in Hugging Face's Qwen3.5.
    """

    def __init__(
        self,
        hidden: int,
        key_heads: int,
        value_heads: int,
        key_dim: int,
        value_dim: int,
        width: int,
        eps: float = 1e-6,
        dtype: Any = float32,
    ) -> None:
        self.key_heads, self.group = key_heads, value_heads // key_heads
        self.key_dim, self.value_dim = key_dim, value_dim
        keys, values = key_heads * key_dim, value_heads * value_dim
        self.sizes = keys, keys, values
        self.in_proj_qkv = Linear(hidden, sum(self.sizes), False, dtype)
        self.in_proj_z = Linear(hidden, values, False, dtype)
        self.in_proj_b = Linear(hidden, value_heads, False, dtype)
        self.in_proj_a = Linear(hidden, value_heads, False, dtype)
        self.conv1d = CausalConvolution(sum(self.sizes), width, False, dtype)
        self.dt_bias = init.parameter((value_heads,), init.ones, dtype)
        self.A_log = init.parameter((value_heads,), init.zeros, dtype)
        self.norm = RMSNorm(value_dim, eps, dtype=dtype)
        self.out_proj = Linear(values, hidden, False, dtype)
        self.shapes = self.conv1d.kept, (self.key_heads, self.group, self.key_dim, self.value_dim)

    def forward(
        self,
        x: Tensor,
        angles: None = None,
        cache: RecurrentCache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """x (..., s, hidden) to the same shape."""
        window, memory = self.before(cache, x, positions)
        mixed, window = self.conv1d(self.in_proj_qkv(x), window)
        q, k, v = mixed.silu().split(self.sizes, -1)
        heads = self.key_heads, self.group
        q, k = (
            _unit(vectors.unflatten(-1, (self.key_heads, 1, self.key_dim))) for vectors in (q, k)
        )
        v = v.unflatten(-1, (*heads, self.value_dim))
        # The rate is kept as its logarithm: whatever training does to it, the memory decays and
        # never grows.
        rate = self.read(self.A_log, x).cast(x.dtype).exp()
        steps = (self.in_proj_a(x) + self.read(self.dt_bias, x)).softplus()
        kept = (-rate * steps).exp().unflatten(-1, heads)
        share = self.in_proj_b(x).sigmoid().unflatten(-1, heads)
        xs = q * self.key_dim**-0.5, k, v, kept, share

        def step(memory: Tensor, xs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            q, k, v, kept, share = xs
            memory = memory * kept.unsqueeze(-1).unsqueeze(-1)
            # The delta rule: what the memory answers to k is moved towards v, instead of adding v
            # on top.
            said = (memory * k.unsqueeze(-1)).sum(-2)
            correction = (v - said) * share.unsqueeze(-1)
            memory = memory + k.unsqueeze(-1) * correction.unsqueeze(-2)
            return memory, (memory * q.unsqueeze(-1)).sum(-2)

        memory, y = stepped(step, memory, xs, x.ndim - 2)
        if cache is not None:
            cache.keep((window, memory))
        gate = self.in_proj_z(x).unflatten(-1, (*heads, self.value_dim)).silu()
        return self.out_proj((self.norm(y) * gate).flatten(-3))  # type: ignore[no-any-return]


def _unit(x: Tensor) -> Tensor:
    """Vectors of length 1."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()

"""Selective state spaces: a decoder's layers that read a text step by step.

Gu and Dao, arXiv 2312.00752 (Mamba); Dao and Gu, arXiv 2405.21060 (Mamba-2).
"""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.cache import Positions
from luminal.nn.causal_convolution import CausalConvolution
from luminal.nn.linear import Linear
from luminal.nn.recurrent_cache import RecurrentCache, RecurrentLayer, stepped


class Mamba(RecurrentLayer):
    """Each of `inner` channels has a state of `states` numbers; `rank` features say the time step.

    `norm_eps`: time steps and both projections of the state are normed (Zuo et al., arXiv
    2410.05355). Names as in Hugging Face's Mamba.
    """

    def __init__(
        self,
        hidden: int,
        inner: int,
        states: int,
        rank: int,
        width: int,
        bias: bool = False,
        convolution_bias: bool = True,
        norm_eps: float | None = None,
        dtype: Any = float32,
    ) -> None:
        self.inner, self.states, self.rank, self.norm_eps = inner, states, rank, norm_eps
        self.in_proj = Linear(hidden, 2 * inner, bias, dtype)
        self.conv1d = CausalConvolution(inner, width, convolution_bias, dtype)
        self.x_proj = Linear(inner, rank + 2 * states, False, dtype)
        self.dt_proj = Linear(rank, inner, True, dtype)
        self.A_log = init.parameter((inner, states), init.zeros, dtype)
        self.D = init.parameter((inner,), init.ones, dtype)
        self.out_proj = Linear(inner, hidden, bias, dtype)
        self.shapes = self.conv1d.kept, (self.inner, self.states)

    def forward(
        self,
        x: Tensor,
        angles: None = None,
        cache: RecurrentCache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """x (..., s, hidden) to the same shape."""
        window, state = self.before(cache, x, positions)
        u, gate = self.in_proj(x).chunk(2, -1)
        u, window = self.conv1d(u, window)
        u = u.silu()
        parts = self.x_proj(u).split((self.rank, self.states, self.states), -1)
        if self.norm_eps is not None:
            parts = [part.rms_norm((-1,), None, self.norm_eps) for part in parts]
        dt, into, out = parts
        dt = self.dt_proj(dt).softplus()
        # As a logarithm the rate is negative for any weights, so the state always decays.
        rate = -self.read(self.A_log, x).cast(x.dtype).exp()

        def step(state: Tensor, xs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            dt, u, into, out = xs
            # Zero-order hold of the decay, Euler's step of the input, as the paper's code does it.
            kept = (dt.unsqueeze(-1) * rate).exp() * state
            state = kept + (dt * u).unsqueeze(-1) * into.unsqueeze(-2)
            return state, (state * out.unsqueeze(-2)).sum(-1)

        state, y = stepped(step, state, (dt, u, into, out), x.ndim - 2)
        if cache is not None:
            cache.keep((window, state))
        y = (y + u * self.read(self.D, x)) * gate.silu()
        return self.out_proj(y)  # type: ignore[no-any-return]


class Mamba2(RecurrentLayer):
    """`heads` of `head_dim` channels have one rate each; `groups` of them share projections.

    Names as in Hugging Face's Mamba2, whose mixer's norm is `gated_norm` here.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        head_dim: int,
        states: int,
        groups: int,
        width: int,
        bias: bool = False,
        convolution_bias: bool = True,
        eps: float = 1e-5,
        dtype: Any = float32,
    ) -> None:
        self.heads, self.head_dim, self.states, self.groups = heads, head_dim, states, groups
        self.inner, self.eps = heads * head_dim, eps
        channels = self.inner + 2 * groups * states
        self.in_proj = Linear(hidden, self.inner + channels + heads, bias, dtype)
        self.conv1d = CausalConvolution(channels, width, convolution_bias, dtype)
        self.dt_bias = init.parameter((heads,), init.zeros, dtype)
        self.A_log = init.parameter((heads,), init.zeros, dtype)
        self.D = init.parameter((heads,), init.ones, dtype)
        self.gated_norm = init.parameter((self.inner,), init.ones, dtype)
        self.out_proj = Linear(self.inner, hidden, bias, dtype)
        by_group = self.groups, self.heads // self.groups
        self.shapes = self.conv1d.kept, (*by_group, self.head_dim, self.states)

    def forward(
        self,
        x: Tensor,
        angles: None = None,
        cache: RecurrentCache | None = None,
        positions: Positions = 0,
    ) -> Tensor:
        """x (..., s, hidden) to the same shape."""
        window, state = self.before(cache, x, positions)
        sizes = self.inner, self.conv1d.channels, self.heads
        gate, mixed, dt = self.in_proj(x).split(sizes, -1)
        mixed, window = self.conv1d(mixed, window)
        share = self.groups * self.states
        u, into, out = mixed.silu().split((self.inner, share, share), -1)
        by_group = self.groups, self.heads // self.groups
        u = u.unflatten(-1, (*by_group, self.head_dim))
        into, out = (
            projected.unflatten(-1, (self.groups, self.states)) for projected in (into, out)
        )
        dt = (dt + self.read(self.dt_bias, x)).softplus()
        # What does not depend on the state is computed for all positions at once; a step has the
        # state alone.
        kept = (dt * -self.read(self.A_log, x).cast(x.dtype).exp()).exp().unflatten(-1, by_group)
        added = u * dt.unflatten(-1, by_group).unsqueeze(-1)

        def step(state: Tensor, xs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            kept, added, into, out = xs
            new = added.unsqueeze(-1) * into.unsqueeze(-2).unsqueeze(-2)
            state = state * kept.unsqueeze(-1).unsqueeze(-1) + new
            return state, (state * out.unsqueeze(-2).unsqueeze(-2)).sum(-1)

        state, y = stepped(step, state, (kept, added, into, out), x.ndim - 2)
        if cache is not None:
            cache.keep((window, state))
        skipped = u * self.read(self.D, x).unflatten(0, by_group).unsqueeze(-1)
        gated = (y + skipped).flatten(-3) * gate.silu()
        normed = gated.unflatten(-1, (self.groups, -1)).rms_norm((-1,), None, self.eps).flatten(-2)
        return self.out_proj(normed * self.read(self.gated_norm, x))  # type: ignore[no-any-return]

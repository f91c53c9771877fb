"""Selective state spaces: a decoder's layers that read a text step by step.

Gu and Dao, arXiv 2312.00752 (Mamba); Dao and Gu, arXiv 2405.21060 (Mamba-2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from luminal.base.dtypes import float32
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.cache import Positions
from luminal.nn.causal_convolution import CausalConvolution
from luminal.nn.linear import Linear
from luminal.nn.norm import RMSNorm
from luminal.nn.recurrent_cache import RecurrentCache, RecurrentLayer, stepped


class Mamba(RecurrentLayer):
    """Each of `inner` channels has a state of `states` numbers; `rank` features say the time step.

    `norm_eps`: time steps and both projections of the state are normed (Zuo et al., arXiv
    2410.05355), with weights where `norm_weights` says so (Lieber et al., arXiv 2403.19887). Names
    as in Hugging Face's Mamba.
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
        norm_weights: bool = False,
    ) -> None:
        self.inner, self.states, self.rank = inner, states, rank
        self.in_proj = Linear(hidden, 2 * inner, bias, dtype)
        self.conv1d = CausalConvolution(inner, width, convolution_bias, dtype)
        self.x_proj = Linear(inner, rank + 2 * states, False, dtype)
        self.dt_proj = Linear(rank, inner, True, dtype)
        self.A_log = init.parameter((inner, states), init.zeros, dtype)
        self.D = init.parameter((inner,), init.ones, dtype)
        self.out_proj = Linear(inner, hidden, bias, dtype)
        self.dt_norm, self.b_norm, self.c_norm = (
            None if norm_eps is None else RMSNorm(size, norm_eps, norm_weights, dtype)
            for size in (rank, states, states)
        )
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
        norms = self.dt_norm, self.b_norm, self.c_norm
        dt, into, out = (
            part if norm is None else norm(part) for part, norm in zip(parts, norms, strict=True)
        )
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

    `norm`: what the scan gives is normed by groups "after" its gate, "before" it, or not (None).
    `output_bias`: of the last projection, `bias` by default. `scales`: what the parts of the first
    projection are times: the gate, what is scanned, into and out of the state, the time step. Names
    as in Hugging Face's Mamba2, whose mixer's norm is `gated_norm` here.
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
        *,
        output_bias: bool | None = None,
        norm: str | None = "after",
        scales: Sequence[float] = (1, 1, 1, 1, 1),
    ) -> None:
        self.heads, self.head_dim, self.states, self.groups = heads, head_dim, states, groups
        self.inner, self.eps = heads * head_dim, eps
        channels = self.inner + 2 * groups * states
        self.in_proj = Linear(hidden, self.inner + channels + heads, bias, dtype)
        self.conv1d = CausalConvolution(channels, width, convolution_bias, dtype)
        self.dt_bias = init.parameter((heads,), init.zeros, dtype)
        self.A_log = init.parameter((heads,), init.zeros, dtype)
        self.D = init.parameter((heads,), init.ones, dtype)
        self.norm = norm
        self.gated_norm = init.parameter((self.inner,), init.ones, dtype) if norm else None
        last = bias if output_bias is None else output_bias
        self.out_proj = Linear(self.inner, hidden, last, dtype)
        sizes = self.inner, self.inner, groups * states, groups * states, heads
        scaled = any(scale != 1 for scale in scales)
        self.scales = np.repeat(np.array(scales, np.float32), sizes) if scaled else None
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
        projected = self.in_proj(x)
        if self.scales is not None:
            projected = projected * self.scales
        gate, mixed, dt = projected.split(sizes, -1)
        mixed, window = self.conv1d(mixed, window)
        share = self.groups * self.states
        u, into, out = mixed.silu().split((self.inner, share, share), -1)
        by_group = self.groups, self.heads // self.groups
        u = u.unflatten(-1, (*by_group, self.head_dim))
        into, out = (part.unflatten(-1, (self.groups, self.states)) for part in (into, out))
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
        y = (y + skipped).flatten(-3)
        if self.norm == "before":
            y = self._normed(y)
        y = y * gate.silu()
        if self.norm == "after":
            y = self._normed(y)
        return self.out_proj(y)  # type: ignore[no-any-return]

    def _normed(self, y: Tensor) -> Tensor:
        """y (..., s, inner), each group of its channels normed."""
        normed = y.unflatten(-1, (self.groups, -1)).rms_norm((-1,), None, self.eps).flatten(-2)
        assert self.gated_norm is not None
        return normed * self.read(self.gated_norm, y)

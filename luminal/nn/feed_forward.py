"""The feed-forward part of a transformer block."""

from __future__ import annotations

from typing import Any

from luminal.dtypes import float32
from luminal.frontend.tensor import Tensor
from luminal.nn.linear import Linear
from luminal.nn.module import Module


class SwiGLU(Module):
    """`down(silu(gate(x)) * up(x))`. Shazeer, arXiv 2002.05202."""

    def __init__(self, hidden: int, inner: int, bias: bool = False, dtype: Any = float32) -> None:
        self.gate_proj = Linear(hidden, inner, bias, dtype)
        self.up_proj = Linear(hidden, inner, bias, dtype)
        self.down_proj = Linear(inner, hidden, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden) to the same shape."""
        gated: Tensor = self.gate_proj(x).silu() * self.up_proj(x)
        down: Tensor = self.down_proj(gated)
        return down

"""Layers without Parameters, for use in Sequential."""

from __future__ import annotations

from luminal.frontend.tensor import Tensor
from luminal.nn.module import Module


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        return x.relu()


class GELU(Module):
    """x times the normal distribution's probability below x; `approximate` "none" or "tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        return x.gelu(self.approximate)


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        return x.silu()


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        return x.tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        return x.sigmoid()


class Softmax(Module):
    """exp(x) / sum(exp(x)) along `dim`."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        return x.softmax(self.dim)


class Flatten(Module):
    """The dims start_dim .. end_dim as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """The same elements in fewer dims."""
        return x.flatten(self.start_dim, self.end_dim)

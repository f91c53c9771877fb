"""A convolution over the positions of each channel, which sees no later ones."""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.movement.views import concat
from luminal.frontend.tensor import Tensor
from luminal.nn import init
from luminal.nn.linear import near_zero
from luminal.nn.module import Module


class CausalConvolution(Module):
    """Weights (channels, 1, width), as PyTorch's Conv1d of as many groups as channels."""

    def __init__(self, channels: int, width: int, bias: bool = True, dtype: Any = float32) -> None:
        self.channels, self.width = channels, width
        draw = near_zero(width)
        self.weight = init.parameter((channels, 1, width), draw, dtype)
        self.bias = init.parameter((channels,), draw, dtype) if bias else None

    @property
    def kept(self) -> tuple[int, int]:
        """The shape of what the next positions need of those before."""
        return self.width - 1, self.channels

    def forward(self, x: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """x (..., s, channels) and what came before, (..., width - 1, channels).

        Gives x's shape, and what comes before the positions after these.
        """
        seen, count = concat((before, x), -2), x.extents[-2]
        taps = self.read(self.weight, x).squeeze(1).mT
        # A few taps of each channel: a sum of shifted views, which fuses with what follows.
        y = seen[..., :count, :] * taps[0]
        for k in range(1, self.width):
            y = y + seen[..., k : count + k, :] * taps[k]
        if self.bias is not None:
            y = y + self.read(self.bias, x)
        return y, seen[..., count : count + self.width - 1, :]

"""ConvNeXt: convolutions in the form of a transformer's layers. Liu et al., arXiv 2201.03545."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from luminal.base.dtypes import float32
from luminal.frontend.tensor import Tensor
from luminal.nn import Conv2d, FeedForward, LayerNorm, Module, ModuleList, Sequential, init

_EPS = 1e-6


class ChannelNorm(LayerNorm):
    """A layer norm over the channels of each place."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) to the same shape."""
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class ConvNeXtLayer(Module):
    """A 7 x 7 convolution of each channel, a norm, a feed-forward part; their sum with the input.

    `scaled`: what is added is times a vector.
    """

    def __init__(self, channels: int, activation: str, scaled: bool, dtype: Any) -> None:
        self.conv = Conv2d(channels, channels, 7, padding=3, groups=channels, dtype=dtype)
        self.norm = LayerNorm(channels, _EPS, dtype=dtype)
        self.mlp = FeedForward(channels, 4 * channels, activation, dtype=dtype)
        self.scale = init.parameter((channels,), init.ones, dtype) if scaled else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) to the same shape."""
        # Channels last for a norm and two products over channels: an index map, which moves
        # nothing.
        y: Tensor = self.mlp(self.norm(self.conv(x).movedim(1, -1)))
        if self.scale is not None:
            y = y * self.read(self.scale, y)
        return x + y.movedim(-1, 1)


class ConvNeXt(Module):
    """Images to one vector each, of `width` numbers: stages of layers, each at half the size.

    `widths` and `depths`: channels and layers of every stage; `eps` is of the last norm.
    """

    def __init__(
        self,
        channels: int,
        patch_size: int,
        widths: Sequence[int],
        depths: Sequence[int],
        activation: str = "gelu",
        eps: float = 1e-12,
        scaled: bool = True,
        dtype: Any = float32,
    ) -> None:
        self.width = widths[-1]
        patches = Conv2d(channels, widths[0], patch_size, patch_size, dtype=dtype)
        self.stem = Sequential(patches, ChannelNorm(widths[0], _EPS, dtype=dtype))
        halves = [
            Sequential(ChannelNorm(a, _EPS, dtype=dtype), Conv2d(a, b, 2, 2, dtype=dtype))
            for a, b in pairwise(widths)
        ]
        self.halves = ModuleList(halves)
        self.stages = ModuleList(
            Sequential(*(ConvNeXtLayer(width, activation, scaled, dtype) for _ in range(depth)))
            for width, depth in zip(widths, depths, strict=True)
        )
        self.norm = LayerNorm(self.width, eps, dtype=dtype)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, width)."""
        x = self.stem(images)
        for number, stage in enumerate(self.stages):
            x = stage(self.halves[number - 1](x) if number else x)
        y: Tensor = self.norm(x.mean((-2, -1)))
        return y

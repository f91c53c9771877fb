"""HiFi-GAN: latents to samples of sound. Kong, Kim and Bae, arXiv 2010.05646."""

from __future__ import annotations

import math
from typing import Any

from luminal.base.dtypes import float32
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.nn import Conv1d, ConvTranspose1d, Module, ModuleList

_ENDS = 7  # the kernel of the first and the last convolution


@dataclass(frozen=True, slots=True)
class HifiGanConfig:
    """`rates` and `kernels`: of the transposed convolutions, each of which halves the `channels`.
    `block_kernels`, `block_dilations`: of the blocks that follow each, side by side. `slope`: of
    the activations below 0.
    """

    channels: int
    rates: tuple[int, ...]
    kernels: tuple[int, ...]
    block_kernels: tuple[int, ...]
    block_dilations: tuple[tuple[int, ...], ...]
    slope: float = 0.1

    @property
    def hop(self) -> int:
        """Samples of a frame."""
        return math.prod(self.rates)


class ResidualBlock(Module):
    """Pairs of convolutions over time, the first of each dilated, that are added to their input."""

    def __init__(
        self,
        channels: int,
        kernel: int,
        dilations: tuple[int, ...],
        slope: float,
        dtype: Any = float32,
    ) -> None:
        self.slope = slope
        self.dilated, self.plain = (
            ModuleList(
                Conv1d(channels, channels, kernel, padding="same", dilation=gap, dtype=dtype)
                for gap in gaps
            )
            for gaps in (dilations, (1,) * len(dilations))
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, s) to the same shape."""
        for dilated, plain in zip(self.dilated, self.plain, strict=True):
            x = x + plain(dilated(x.leaky_relu(self.slope)).leaky_relu(self.slope))
        return x


class HifiGan(Module):
    """Frames become more and more samples of fewer and fewer channels."""

    def __init__(
        self, config: HifiGanConfig, inputs: int, voice: int = 0, dtype: Any = float32
    ) -> None:
        self.config, channels = config, config.channels
        self.before = Conv1d(inputs, channels, _ENDS, padding="same", dtype=dtype)
        self.condition = Conv1d(voice, channels, 1, dtype=dtype) if voice else None
        upsamplers, blocks = [], []
        for rate, kernel in zip(config.rates, config.kernels, strict=True):
            halves, padding = channels // 2, (kernel - rate) // 2
            upsamplers.append(ConvTranspose1d(channels, halves, kernel, rate, padding, dtype=dtype))
            channels = halves
            blocks += [
                ResidualBlock(channels, size, gaps, config.slope, dtype)
                for size, gaps in zip(config.block_kernels, config.block_dilations, strict=True)
            ]
        self.upsamplers, self.blocks = ModuleList(upsamplers), ModuleList(blocks)
        self.after = Conv1d(channels, 1, _ENDS, padding="same", bias=False, dtype=dtype)

    def forward(self, x: Tensor, voice: Tensor | None = None) -> Tensor:
        """(batch, inputs, frames) to (batch, frames * hop), from -1 to 1; `voice` (batch,
        voice_size, 1).
        """
        x = self.before(x)
        if self.condition is not None and voice is not None:
            x = x + self.condition(voice)
        blocks, count = [*self.blocks], len(self.config.block_kernels)
        for number, upsampler in enumerate(self.upsamplers):
            x = upsampler(x.leaky_relu(self.config.slope))
            sounds = [block(x) for block in blocks[count * number : count * (number + 1)]]
            x = sum(sounds[1:], sounds[0]) / count
        samples: Tensor = self.after(x.leaky_relu()).tanh().squeeze(1)
        return samples

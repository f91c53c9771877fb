"""The U-Net of latent diffusion: what of latents is noise. Rombach et al., arXiv 2112.10752."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.movement.views import concat
from luminal.frontend.tensor import Tensor
from luminal.models.diffusion.blocks import BlockSettings, ResidualBlock, TextAttention, doubled
from luminal.nn import Conv2d, GroupNorm, Linear, Module, ModuleList
from luminal.nn.feed_forward import activation_of

_LONGEST_WAVE = 10000.0


@dataclass(frozen=True, slots=True)
class LevelConfig:
    """Blocks of `width` channels at one size; `down`, `up`: do those on the way down, and up, look
    at the text, with so many `heads`, in so many layers (`depth`).
    """

    width: int
    heads: int
    depth: int
    down: bool
    up: bool


@dataclass(frozen=True, slots=True)
class UNetConfig:
    """`blocks`: residual blocks of a level on the way down, one more on the way up. `text`:
    features of a token. `cosine_first`, `shift`: the waves that tell the time. `side`: of the
    latents that it was trained with.
    """

    inputs: int
    outputs: int
    levels: tuple[LevelConfig, ...]
    blocks: int
    groups: int
    eps: float
    activation: str
    text: int
    cosine_first: bool = True
    shift: float = 0.0
    side: int = 64

    @property
    def step(self) -> int:
        """What sides must be multiples of: each level but the last halves them."""
        return int(2 ** (len(self.levels) - 1))


class Level(Module):
    """Residual blocks, attention to the text after each if there is any, and a convolution that
    halves the size or follows its doubling.
    """

    def __init__(
        self, resnets: ModuleList, attentions: ModuleList, resample: Conv2d | None
    ) -> None:
        self.resnets, self.attentions, self.resample = resnets, attentions, resample

    def pairs(self) -> Iterator[tuple[Module, Module | None]]:
        """Each block with its attention."""
        attentions = [*self.attentions] or [None] * len(self.resnets)
        return zip(self.resnets, attentions, strict=True)


class TimeEmbedding(Module):
    """Features of a moment: sines and cosines of it through two linear layers."""

    def __init__(self, config: UNetConfig, dtype: Any = float32) -> None:
        self.config = config
        width = config.levels[0].width
        self.activation = activation_of(config.activation)
        self.linear_1 = Linear(width, 4 * width, dtype=dtype)
        self.linear_2 = Linear(4 * width, 4 * width, dtype=dtype)

    def forward(self, time: Tensor) -> Tensor:
        """A number () to its features (4 * width,)."""
        count = self.config.levels[0].width // 2
        speeds = _LONGEST_WAVE ** (-np.arange(count) / (count - self.config.shift))
        angles = time.unsqueeze(0) * speeds.astype(np.float32)
        waves = angles.cos(), angles.sin()
        told = concat(waves if self.config.cosine_first else waves[::-1], 0)
        embedded: Tensor = self.linear_2(self.activation(self.linear_1(told)))
        return embedded


class UNet(Module):
    """Latents, a moment and a text to the noise in them: down to small pictures and up again, where
    each block also sees what the way down had at its size.
    """

    def __init__(self, config: UNetConfig, dtype: Any = float32) -> None:
        self.config = config
        levels, first, last = config.levels, config.levels[0].width, config.levels[-1]
        settings = BlockSettings(config.groups, config.eps, config.activation, 4 * first)

        def block(inputs: int, outputs: int) -> ResidualBlock:
            return ResidualBlock(inputs, outputs, settings, dtype)

        def attention(level: LevelConfig) -> TextAttention:
            sizes = level.width, level.heads, level.depth, config.text, config.groups
            return TextAttention(*sizes, dtype)

        self.time_embedding = TimeEmbedding(config, dtype)
        self.conv_in = Conv2d(config.inputs, first, 3, padding=1, dtype=dtype)
        self.down_blocks, self.up_blocks = ModuleList(), ModuleList()
        width, widths = first, [first]  # of what the way up will see, the last one first
        for number, level in enumerate(levels):
            inputs = [width, *[level.width] * (config.blocks - 1)]
            width, halves = level.width, number < len(levels) - 1
            widths += [width] * (config.blocks + halves)
            self.down_blocks.append(
                Level(
                    ModuleList(block(count, width) for count in inputs),
                    ModuleList(attention(level) for _ in inputs if level.down),
                    Conv2d(width, width, 3, 2, 1, dtype=dtype) if halves else None,
                )
            )
        middle = ModuleList(block(width, width) for _ in range(2))
        self.mid_block = Level(middle, ModuleList([attention(last)]), None)
        for number, level in enumerate(levels[::-1]):
            inputs = [width, *[level.width] * config.blocks]
            width = level.width
            doubles = number < len(levels) - 1
            self.up_blocks.append(
                Level(
                    ModuleList(block(count + widths.pop(), width) for count in inputs),
                    ModuleList(attention(level) for _ in inputs if level.up),
                    Conv2d(width, width, 3, padding=1, dtype=dtype) if doubles else None,
                )
            )
        self.activation = activation_of(config.activation)
        self.conv_norm_out = GroupNorm(config.groups, first, config.eps, dtype=dtype)
        self.conv_out = Conv2d(first, config.outputs, 3, padding=1, dtype=dtype)

    def forward(self, latents: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """(batch, inputs, h, w), a number and (batch, tokens, features) to (batch, outputs, h, w);
        h and w are multiples of `config.step`.
        """
        told = self.time_embedding(time)
        x = self.conv_in(latents)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        seen = [x]
        for level in self.down_blocks:
            assert isinstance(level, Level)
            for block, attention in level.pairs():
                x = block(x, told)
                x = x if attention is None else attention(x, text)
                seen.append(x)
            if level.resample is not None:
                x = level.resample(x)
                seen.append(x)
        first, last = self.mid_block.resnets
        x = last(self.mid_block.attentions[0](first(x, told), text), told)
        for level in self.up_blocks:
            assert isinstance(level, Level)
            for block, attention in level.pairs():
                x = block(concat((x, seen.pop()), 1), told)
                x = x if attention is None else attention(x, text)
            if level.resample is not None:
                x = level.resample(doubled(x))
        noise: Tensor = self.conv_out(self.activation(self.conv_norm_out(x)))
        return noise

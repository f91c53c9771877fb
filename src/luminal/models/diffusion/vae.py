"""The VAE of latent diffusion: pictures to latents of an eighth of their size, and back.

Kingma and Welling, arXiv 1312.6114; Rombach et al., arXiv 2112.10752.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.models.diffusion.blocks import (
    NORM_EPS,
    AttendedPlaces,
    BlockSettings,
    ResidualBlock,
    doubled,
)
from luminal.nn import Conv2d, GroupNorm, Module, ModuleList
from luminal.nn.feed_forward import activation_of


@dataclass(frozen=True, slots=True)
class VaeConfig:
    """`widths`: channels of each size, of which all but the last are halved. `blocks`: of a size on
    the way to latents, one more on the way back. `scale`: latents times this have variance 1.
    `mixed`: have both ways a convolution of single places at the latents.
    """

    channels: int
    latents: int
    widths: tuple[int, ...]
    blocks: int
    groups: int
    activation: str
    scale: float
    mixed: tuple[bool, bool] = (True, True)

    @property
    def step(self) -> int:
        """Pixels to a place of the latents, in each direction."""
        return int(2 ** (len(self.widths) - 1))

    @property
    def settings(self) -> BlockSettings:
        """What its blocks share."""
        return BlockSettings(self.groups, NORM_EPS, self.activation)


class PlainLevel(Module):
    """Residual blocks at one size, and a convolution that changes it."""

    def __init__(self, resnets: ModuleList, resample: Conv2d | None) -> None:
        self.resnets, self.resample = resnets, resample

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, outputs, h, w), before the change of size."""
        for block in self.resnets:
            x = block(x)
        return x


class _Way(Module):
    """What both ways have: a convolution in, levels, a middle, a norm and a convolution out.

    `widths`: what each level makes of the one before; the first is that of the first convolution.
    """

    def __init__(
        self, config: VaeConfig, inputs: int, outputs: int, widths: Sequence[int], dtype: Any
    ) -> None:
        self.config, self.activation = config, activation_of(config.activation)
        settings, middle = config.settings, config.widths[-1]
        self.conv_in = Conv2d(inputs, widths[0], 3, padding=1, dtype=dtype)
        self.middle = ModuleList(
            (
                ResidualBlock(middle, middle, settings, dtype),
                AttendedPlaces(middle, settings, dtype),
                ResidualBlock(middle, middle, settings, dtype),
            )
        )
        self.conv_norm_out = GroupNorm(config.groups, widths[-1], NORM_EPS, dtype=dtype)
        self.conv_out = Conv2d(widths[-1], outputs, 3, padding=1, dtype=dtype)

    def _levels(self, widths: list[int], blocks: int, resamples: Sequence[Any]) -> ModuleList:
        settings, levels = self.config.settings, ModuleList()
        dtype = self.conv_in.weight.dtype
        for before, width, resample in zip(
            widths[:1] + widths[:-1], widths, resamples, strict=True
        ):
            inputs = [before, *[width] * (blocks - 1)]
            parts = ModuleList(ResidualBlock(count, width, settings, dtype) for count in inputs)
            levels.append(PlainLevel(parts, resample))
        return levels

    def _through_middle(self, x: Tensor) -> Tensor:
        for part in self.middle:
            x = part(x)
        return x

    def _out(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv_out(self.activation(self.conv_norm_out(x)))
        return y


class Encoder(_Way):
    """Pictures to the mean and the logarithm of the variance of each latent."""

    def __init__(self, config: VaeConfig, dtype: Any = float32) -> None:
        widths = list(config.widths)
        super().__init__(config, config.channels, 2 * config.latents, widths, dtype)
        halves = [Conv2d(width, width, 3, 2, dtype=dtype) for width in widths[:-1]]
        self.levels = self._levels(widths, config.blocks, [*halves, None])

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) to (batch, 2 * latents, h / step, w / step)."""
        x = self.conv_in(x)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        for level in self.levels:
            assert isinstance(level, PlainLevel)
            x = level(x)
            if level.resample is not None:
                # Zeros on the right and below alone, as it was trained.
                x = level.resample(x.pad([(0, 0), (0, 0), (0, 1), (0, 1)]))
        return self._out(self._through_middle(x))


class Decoder(_Way):
    """Latents back to the pictures they stand for."""

    def __init__(self, config: VaeConfig, dtype: Any = float32) -> None:
        widths = list(config.widths[::-1])
        super().__init__(config, config.latents, config.channels, widths, dtype)
        after = [Conv2d(width, width, 3, padding=1, dtype=dtype) for width in widths[:-1]]
        self.levels = self._levels(widths, config.blocks + 1, [*after, None])

    def forward(self, x: Tensor) -> Tensor:
        """(batch, latents, h, w) to (batch, channels, h * step, w * step)."""
        x = self.conv_in(x)
        x = self._through_middle(x.cast(promote(x.dtype, float32)))
        for level in self.levels:
            assert isinstance(level, PlainLevel)
            x = level(x)
            if level.resample is not None:
                x = level.resample(doubled(x))
        return self._out(x)


class Vae(Module):
    """Both ways; latents have variance 1 or so, pictures values from -1 to 1."""

    def __init__(self, config: VaeConfig, dtype: Any = float32) -> None:
        self.config = config
        self.encoder, self.decoder = Encoder(config, dtype), Decoder(config, dtype)
        self.quant_conv, self.post_quant_conv = (
            Conv2d(count, count, 1, dtype=dtype) if mixed else None
            for count, mixed in zip((2 * config.latents, config.latents), config.mixed, strict=True)
        )

    def encode(self, pictures: Tensor) -> Tensor:
        """The likeliest latents of pictures: (batch, latents, h / step, w / step)."""
        x = self.encoder(pictures)
        if self.quant_conv is not None:
            x = self.quant_conv(x)
        latents: Tensor = x[:, : self.config.latents] * self.config.scale
        return latents

    def decode(self, latents: Tensor) -> Tensor:
        """The pictures of (batch, latents, h, w): (batch, channels, h * step, w * step)."""
        x = latents * (1 / self.config.scale)
        if self.post_quant_conv is not None:
            x = self.post_quant_conv(x)
        pictures: Tensor = self.decoder(x)
        return pictures

    def forward(self, pictures: Tensor) -> Tensor:
        """(batch, channels, h, w), sides multiples of `config.step`, there and back."""
        return self.decode(self.encode(pictures))

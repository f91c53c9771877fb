"""What a U-Net and a VAE are built of: residual blocks of convolutions, and attention."""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.nn import (
    Conv2d,
    GatedFeedForward,
    GroupNorm,
    LayerNorm,
    Linear,
    MaskedAttention,
    Module,
    ModuleList,
)
from luminal.nn.feed_forward import activation_of

NORM_EPS = 1e-6  # of norms before attention, and of all in a VAE


@dataclass(frozen=True, slots=True)
class BlockSettings:
    """What all blocks of a network share; `time`: features of what tells the time, if anything."""

    groups: int
    eps: float
    activation: str
    time: int | None = None


class ResidualBlock(Module):
    """Two convolutions, each after a norm and an activation, added to their input."""

    def __init__(
        self, inputs: int, outputs: int, settings: BlockSettings, dtype: Any = float32
    ) -> None:
        self.activation = activation_of(settings.activation)
        self.norm1 = GroupNorm(settings.groups, inputs, settings.eps, dtype=dtype)
        self.conv1 = Conv2d(inputs, outputs, 3, padding=1, dtype=dtype)
        time = settings.time
        self.time_emb_proj = None if time is None else Linear(time, outputs, dtype=dtype)
        self.norm2 = GroupNorm(settings.groups, outputs, settings.eps, dtype=dtype)
        self.conv2 = Conv2d(outputs, outputs, 3, padding=1, dtype=dtype)
        same = inputs == outputs
        self.conv_shortcut = None if same else Conv2d(inputs, outputs, 1, dtype=dtype)

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        """(batch, inputs, h, w) to (batch, outputs, h, w); `time` is (features,)."""
        y = self.conv1(self.activation(self.norm1(x)))
        if self.time_emb_proj is not None:
            assert time is not None
            told = self.time_emb_proj(self.activation(time))
            y = y + told.unsqueeze(-1).unsqueeze(-1)
        y = self.conv2(self.activation(self.norm2(y)))
        added: Tensor = y + (x if self.conv_shortcut is None else self.conv_shortcut(x))
        return added


class AttendedPlaces(Module):
    """Attention of all places of a picture to each other, added to it."""

    def __init__(self, channels: int, settings: BlockSettings, dtype: Any = float32) -> None:
        self.group_norm = GroupNorm(settings.groups, channels, settings.eps, dtype=dtype)
        self.attention = MaskedAttention(channels, 1, channels, dtype=dtype)

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        """(batch, channels, h, w) to the same shape."""
        attended = self.attention(self.group_norm(x).flatten(2).mT)
        y: Tensor = x + attended.mT.unflatten(-1, x.extents[2:])
        return y


class TextLayer(Module):
    """Attention between places, then to a text, then a gated feed-forward part."""

    def __init__(self, channels: int, heads: int, text: int, dtype: Any = float32) -> None:
        width = channels // heads
        self.norm1, self.norm2, self.norm3 = (LayerNorm(channels, dtype=dtype) for _ in range(3))
        self.attention, self.cross = (
            MaskedAttention(
                channels, heads, width, False, dtype, output_bias=True, attended=features
            )
            for features in (None, text)
        )
        self.mlp = GatedFeedForward(channels, 4 * channels, "gelu", True, dtype)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """(batch, places, channels) to the same shape; `text` is (batch, tokens, features)."""
        x = x + self.attention(self.norm1(x))
        x = x + self.cross(self.norm2(x), self.cross.keys_values(text))
        y: Tensor = x + self.mlp(self.norm3(x))
        return y


class TextAttention(Module):
    """Layers that look at a text, between projections; added to their input."""

    def __init__(
        self, channels: int, heads: int, depth: int, text: int, groups: int, dtype: Any = float32
    ) -> None:
        self.norm = GroupNorm(groups, channels, NORM_EPS, dtype=dtype)
        self.proj_in = Linear(channels, channels, dtype=dtype)
        self.layers = ModuleList(TextLayer(channels, heads, text, dtype) for _ in range(depth))
        self.proj_out = Linear(channels, channels, dtype=dtype)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """(batch, channels, h, w) to the same shape; `text` is (batch, tokens, features)."""
        rows = self.proj_in(self.norm(x).flatten(2).mT)
        for layer in self.layers:
            rows = layer(rows, text)
        y: Tensor = x + self.proj_out(rows).mT.unflatten(-1, x.extents[2:])
        return y


def doubled(x: Tensor) -> Tensor:
    """(batch, channels, h, w) to (batch, channels, 2 h, 2 w): every place four times."""
    return x.interpolate(scale_factor=2.0, mode="nearest")

"""wav2vec 2.0 and HuBERT: samples of sound to logits of characters, one set each 20 ms.

Baevski et al., arXiv 2006.11477; Hsu et al., arXiv 2106.07447.
"""

from __future__ import annotations

import math
from typing import Any

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.models.transformer import Transformer, TransformerConfig
from luminal.nn import Conv1d, GroupNorm, LayerNorm, Linear, Module, ModuleList
from luminal.nn.feed_forward import activation_of


@dataclass(frozen=True, slots=True)
class Wav2Vec2Config:
    """`convs`: channels, kernel and stride of each convolution over samples. `norm_all`: each has a
    layer norm over its channels, else the first one a norm of each channel over the whole sound.
    `position_kernel`, `position_groups`: of the convolution that tells where a frame is.
    `feature_norm`: features are normalised before they are projected.
    """

    convs: tuple[tuple[int, int, int], ...]
    norm_all: bool
    conv_bias: bool
    conv_activation: str
    position_kernel: int
    position_groups: int
    layers: TransformerConfig
    outputs: int
    feature_norm: bool = True

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return math.prod(stride for _, _, stride in self.convs)

    @property
    def shortest(self) -> int:
        """The samples that one frame is made of, without which there is none."""
        count = 1
        for _, kernel, stride in reversed(self.convs):
            count = (count - 1) * stride + kernel
        return count


class SoundConv(Module):
    """A convolution over time, a norm where there is one ("layer" or "group"), an activation."""

    def __init__(
        self, inputs: int, config: Wav2Vec2Config, number: int, dtype: Any = float32
    ) -> None:
        outputs, kernel, stride = config.convs[number]
        self.conv = Conv1d(inputs, outputs, kernel, stride, bias=config.conv_bias, dtype=dtype)
        self.norm: Module | None = None
        if config.norm_all:
            self.norm = LayerNorm(outputs, dtype=dtype)
        elif number == 0:
            self.norm = GroupNorm(outputs, outputs, dtype=dtype)
        self.activation = activation_of(config.conv_activation)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, time) to (batch, outputs, ...)."""
        x = self.conv(x)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        if isinstance(self.norm, LayerNorm):
            x = self.norm(x.mT).mT
        elif self.norm is not None:
            x = self.norm(x)
        return self.activation(x)


class Wav2Vec2(Module):
    """Convolutions over samples, a transformer over their frames, logits of characters."""

    def __init__(self, config: Wav2Vec2Config, dtype: Any = float32) -> None:
        self.config = config
        layers = config.layers
        hidden, features = layers.hidden_size, config.convs[-1][0]
        inputs = [1, *(channels for channels, _, _ in config.convs)]
        self.convs = ModuleList(
            SoundConv(inputs[number], config, number, dtype) for number in range(len(config.convs))
        )
        norm = LayerNorm(features, layers.norm_eps, dtype=dtype) if config.feature_norm else None
        self.feature_norm = norm
        self.projection = Linear(features, hidden, dtype=dtype)
        kernel, groups = config.position_kernel, config.position_groups
        self.positions = Conv1d(
            hidden, hidden, kernel, padding=kernel // 2, groups=groups, dtype=dtype
        )
        # With norms after its parts a transformer has none at its end, and one before its layers.
        self.norm = layers.make_norm(dtype) if layers.norm_place == "after" else None
        self.transformer = Transformer(layers, dtype)
        self.head = Linear(hidden, config.outputs, dtype=dtype)

    def forward(self, sounds: Tensor) -> Tensor:
        """(batch, samples) to logits (batch, frames, outputs)."""
        x = sounds.unsqueeze(1)
        for conv in self.convs:
            x = conv(x)
        x = x.mT
        x = self.projection(x if self.feature_norm is None else self.feature_norm(x))
        # Half an even kernel of zeros on both sides makes one frame too many, at the end.
        places = self.positions(x.mT)[..., : x.extents[1]]
        x = x + activation_of(self.config.conv_activation)(places).mT
        logits: Tensor = self.head(self.transformer(x if self.norm is None else self.norm(x)))
        return logits

"""Images as sequences of patches: ViT, DINOv2, the image parts of CLIP and SigLIP.

Dosovitskiy et al., arXiv 2010.11929.
"""

from __future__ import annotations

from typing import Any

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.movement.views import concat
from luminal.frontend.tensor import Tensor
from luminal.models.transformer import Transformer, TransformerConfig
from luminal.nn import Conv2d, LayerNorm, Module, init


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """Images are square; `embedding_norm`: one before the first layer.

    `with_mean`: the image's vector is the first token's and the mean of all others'.
    `first_token`: False where there are only patches.
    """

    image_size: int
    patch_size: int
    channels: int
    layers: TransformerConfig
    patch_bias: bool = True
    embedding_norm: bool = False
    with_mean: bool = False
    first_token: bool = True


class VisionTransformer(Module):
    """Images to one vector each, of `width` numbers."""

    def __init__(self, config: VisionConfig, dtype: Any = float32) -> None:
        self.config = config
        hidden, size = config.layers.hidden_size, config.patch_size
        self.width = hidden * (2 if config.with_mean else 1)
        self.side = config.image_size // size
        self.patches = Conv2d(
            config.channels, hidden, size, stride=size, bias=config.patch_bias, dtype=dtype
        )
        more = int(config.first_token)
        self.first = init.parameter((hidden,), init.zeros, dtype) if more else None
        self.positions = init.parameter((self.side**2 + more, hidden), init.normal, dtype)
        norm = LayerNorm(hidden, config.layers.norm_eps, dtype=dtype)
        self.embed_norm = norm if config.embedding_norm else None
        self.transformer = Transformer(config.layers, dtype)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, width)."""
        tokens = self.tokens(images)
        if not self.config.with_mean:
            return tokens[:, 0]
        return concat((tokens[:, 0], tokens[:, 1:].mean(1)), -1)

    def tokens(self, images: Tensor) -> Tensor:
        """The vectors of the first token, if there is one, and of all patches, row by row:
        (batch, s, hidden).
        """
        x = self.patches(images)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        height, width = x.extents[-2:]
        positions = self.read(self.positions, x).cast(x.dtype)
        x = x.flatten(2).mT
        if self.first is None:
            x = x + self._at(positions, height.value, width.value)
        else:
            # The first token belongs to no patch: what the image is collects there.
            first = (self.read(self.first, x) + positions[0]).expand(x.extents[0], 1, x.extents[2])
            x = concat((first, x + self._at(positions[1:], height.value, width.value)), 1)
        if self.embed_norm is not None:
            x = self.embed_norm(x)
        tokens: Tensor = self.transformer(x)
        return tokens

    def _at(self, positions: Tensor, height: int, width: int) -> Tensor:
        """The positions of a square of patches, blended where an image has more or fewer."""
        if (height, width) == (self.side, self.side):
            return positions
        square = positions.mT.unflatten(-1, (self.side, self.side)).unsqueeze(0)
        # Positions were learned on a grid of one size; between its points they are smooth.
        resized = square.interpolate((height, width), mode="bicubic")
        return resized.squeeze(0).flatten(1).mT

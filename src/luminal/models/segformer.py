"""SegFormer: a label for every place of an image. Xie et al., arXiv 2105.15203."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.movement.views import concat
from luminal.frontend.tensor import Tensor
from luminal.nn import BatchNorm2d, Conv2d, LayerNorm, Linear, MaskedAttention, Module, ModuleList
from luminal.nn.feed_forward import activation_of


@dataclass(frozen=True, slots=True)
class StageConfig:
    """Patches of `patch` pixels every `stride` become `width` features; `depth` layers follow.

    `reduction`: attention looks at one place in so many of each row and column.
    """

    inputs: int
    width: int
    depth: int
    heads: int
    patch: int
    stride: int
    reduction: int
    inner: int
    activation: str = "gelu"


def _rows(picture: Tensor) -> Tensor:
    """(batch, channels, h, w) to (batch, h * w, channels)."""
    return picture.flatten(2).mT


def _picture(rows: Tensor, like: Tensor) -> Tensor:
    """The inverse of `_rows`, of the size of another picture."""
    return rows.mT.unflatten(-1, like.extents[2:])


class SegFormerLayer(Module):
    """Attention to fewer places, then a feed-forward part that looks at neighbours.

    Places have no positions: a convolution with zeros around tells where they are.
    """

    def __init__(self, config: StageConfig, dtype: Any = float32) -> None:
        width, inner = config.width, config.inner
        self.before, self.after = (LayerNorm(width, dtype=dtype) for _ in range(2))
        self.attention = MaskedAttention(width, config.heads, width // config.heads, dtype=dtype)
        many, size = config.reduction > 1, config.reduction
        self.reduce = Conv2d(width, width, size, size, dtype=dtype) if many else None
        self.reduced_norm = LayerNorm(width, dtype=dtype) if many else None
        self.up_proj = Linear(width, inner, dtype=dtype)
        self.conv = Conv2d(inner, inner, 3, padding=1, groups=inner, dtype=dtype)
        self.activation = activation_of(config.activation)
        self.down_proj = Linear(inner, width, dtype=dtype)

    def forward(self, x: Tensor, picture: Tensor) -> Tensor:
        """(batch, h * w, width) to the same shape; `picture` has the size (..., h, w)."""
        normed, attended = self.before(x), None
        if self.reduce is not None and self.reduced_norm is not None:
            fewer = self.reduced_norm(_rows(self.reduce(_picture(normed, picture))))
            attended = self.attention.keys_values(fewer)
        x = x + self.attention(normed, attended)
        inner = _rows(self.conv(_picture(self.up_proj(self.after(x)), picture)))
        y: Tensor = x + self.down_proj(self.activation(inner))
        return y


class SegFormerStage(Module):
    """Overlapping patches, layers, a norm."""

    def __init__(self, config: StageConfig, dtype: Any = float32) -> None:
        width, size = config.width, config.patch
        self.patches = Conv2d(config.inputs, width, size, config.stride, size // 2, dtype=dtype)
        self.first_norm = LayerNorm(width, dtype=dtype)
        self.layers = ModuleList(SegFormerLayer(config, dtype) for _ in range(config.depth))
        self.norm = LayerNorm(width, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, width, ...)."""
        picture = self.patches(x)
        picture = picture.cast(promote(picture.dtype, float32))  # 16-bit weights, 32-bit values
        rows = self.first_norm(_rows(picture))
        for layer in self.layers:
            rows = layer(rows, picture)
        return _picture(self.norm(rows), picture)


class SegFormerTrunk(Module):
    """Images to one vector each: the mean of the last stage, of `width` numbers."""

    def __init__(self, stages: Sequence[StageConfig], dtype: Any = float32) -> None:
        self.width = stages[-1].width
        self.stages = ModuleList(SegFormerStage(stage, dtype) for stage in stages)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, width)."""
        return self.pictures(images)[-1].mean((-2, -1))

    def pictures(self, images: Tensor) -> list[Tensor]:
        """What every stage makes, each smaller than the one before."""
        x, pictures = images, []
        for stage in self.stages:
            x = stage(x)
            pictures.append(x)
        return pictures


class SegFormer(Module):
    """Images to logits of labels, at a quarter of their size: all stages read together."""

    def __init__(
        self, stages: Sequence[StageConfig], width: int, labels: int, dtype: Any = float32
    ) -> None:
        self.trunk = SegFormerTrunk(stages, dtype)
        self.projections = ModuleList(Linear(stage.width, width, dtype=dtype) for stage in stages)
        self.fuse = Conv2d(width * len(stages), width, 1, bias=False, dtype=dtype)
        self.norm = BatchNorm2d(width, dtype=dtype)
        self.head = Conv2d(width, labels, 1, dtype=dtype)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, labels, height / 4, width / 4)."""
        pictures = self.trunk.pictures(images)
        size = pictures[0].extents[2:]
        parts = [
            _picture(projection(_rows(picture)), picture).interpolate(size, mode="bilinear")
            for projection, picture in zip(self.projections, pictures, strict=True)
        ]
        logits: Tensor = self.head(self.norm(self.fuse(concat(parts[::-1], 1))).relu())
        return logits

"""DETR: boxes of things as answers to learned questions. Carion et al., arXiv 2005.12872."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.movement.views import concat, stack
from luminal.frontend.tensor import Tensor
from luminal.models.convolutional import BlockConfig, ConvNet
from luminal.models.transformer import TransformerConfig
from luminal.nn import Conv2d, FeedForward, Linear, Module, ModuleList, init
from luminal.nn.masked_attention import KeysValues

_LONGEST_WAVE = 10000.0
_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class DetrConfig:
    """`labels`: how many there are beside that of nothing, which is the last output."""

    blocks: tuple[BlockConfig, ...]
    encoder: TransformerConfig
    decoder: TransformerConfig
    queries: int
    labels: int


class DetrLayer(Module):
    """Attention to all of x, then to a memory if `cross`, then a feed-forward part; a norm after
    each sum. Queries and keys know places, values do not.
    """

    def __init__(self, config: TransformerConfig, cross: bool, dtype: Any = float32) -> None:
        sizes = config.hidden_size, config.intermediate_size
        self.attention, self.norm = config.make_attention(dtype), config.make_norm(dtype)
        self.cross = config.make_attention(dtype) if cross else None
        self.cross_norm = config.make_norm(dtype) if cross else None
        self.mlp = FeedForward(*sizes, config.activation, dtype=dtype)
        self.last_norm = config.make_norm(dtype)

    def forward(self, x: Tensor, places: Tensor, memory: KeysValues | None = None) -> Tensor:
        """(..., s, hidden) to the same shape; `places` are added to what asks and is asked."""
        x = self.norm(x + self.attention(x + places, self.attention.keys_values(x, places)))
        if self.cross is not None and self.cross_norm is not None:
            x = self.cross_norm(x + self.cross(x + places, memory))
        y: Tensor = self.last_norm(x + self.mlp(x))
        return y


class Detr(Module):
    """A ResNet, an encoder of its places, a decoder of learned queries: a box and a label each."""

    def __init__(self, config: DetrConfig, dtype: Any = float32) -> None:
        self.config = config
        hidden = config.encoder.hidden_size
        self.trunk = ConvNet(config.blocks, dtype)
        self.projection = Conv2d(self.trunk.width, hidden, 1, dtype=dtype)
        self.encoder, self.decoder = (
            ModuleList(DetrLayer(part, cross, dtype) for _ in range(part.num_hidden_layers))
            for part, cross in ((config.encoder, False), (config.decoder, True))
        )
        self.norm = config.decoder.make_norm(dtype)
        self.queries = init.parameter((config.queries, hidden), init.normal, dtype)
        self.head = Linear(hidden, config.labels + 1, dtype=dtype)
        sizes = hidden, hidden, hidden, 4
        self.boxes = ModuleList(Linear(a, b, dtype=dtype) for a, b in pairwise(sizes))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, 3, height, width) to logits (batch, queries, labels + 1), boxes (..., 4): centre
        and size, as parts of the image.
        """
        picture = self.projection(self.trunk.features(images))
        picture = picture.cast(promote(picture.dtype, float32))  # 16-bit weights, 32-bit values
        x, places = picture.flatten(2).mT, _places(picture)
        for layer in self.encoder:
            x = layer(x, places)
        # Every query begins as nothing at its own learned place.
        asked = self.read(self.queries, x).cast(x.dtype)
        answers = asked.graph.zeros((x.extents[0], *asked.extents), dtype=x.dtype)
        for layer in self.decoder:
            assert isinstance(layer, DetrLayer)
            assert layer.cross is not None
            answers = layer(answers, asked, layer.cross.keys_values(x, places))
        answers = box = self.norm(answers)
        for number, linear in enumerate(self.boxes):
            box = linear(box.relu() if number else box)
        return self.head(answers), box.sigmoid()


def _places(picture: Tensor) -> Tensor:
    """Waves over rows, then columns, of a picture (batch, c, h, w): (h * w, c)."""
    graph, (_, channels, height, width) = picture.graph, picture.extents
    count = channels.value // 2
    # Two features, a sine and a cosine, share a wavelength.
    lengths = _LONGEST_WAVE ** (2 * np.arange(count // 2) / count)
    sides = []
    for size in (height, width):
        # Every side has the same length, however many places it has.
        at = (graph.arange(size) + 1).cast(float32) / (graph.constant(size).cast(float32) + _EPS)
        angles = (at * (2 * math.pi)).unsqueeze(-1) / lengths.astype(np.float32)
        sides.append(stack((angles.sin(), angles.cos()), -1).flatten(-2))
    rows = sides[0].unsqueeze(1).expand(height, width, count)
    columns = sides[1].unsqueeze(0).expand(height, width, count)
    return concat((rows, columns), -1).flatten(0, 1)


def corners(boxes: Tensor) -> Tensor:
    """Boxes (..., 4) of a centre and a size to (left, top, right, bottom)."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return concat((centre - half, centre + half), -1)

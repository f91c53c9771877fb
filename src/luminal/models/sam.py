"""Segment Anything: an image is encoded once, then points and boxes ask for masks of things in it.

Kirillov et al., arXiv 2304.02643.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from luminal.base.dtypes import float32, promote
from luminal.base.records import dataclass
from luminal.frontend.movement.views import concat, stack
from luminal.frontend.pointwise.binary import where
from luminal.frontend.tensor import Tensor
from luminal.models.convnext import ChannelNorm
from luminal.nn import (
    Conv2d,
    ConvTranspose2d,
    FeedForward,
    LayerNorm,
    Linear,
    MaskedAttention,
    Module,
    ModuleList,
    init,
)

KINDS = 4  # of prompts: outside, inside, the corner of a box on top and left, the other one
NOTHING = 4  # the kind of a prompt that fills a row
_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class SamEncoderConfig:
    """Images are square, of `side` patches. `windows`: for each layer the side of the squares in
    which it looks, None for all of the image.
    """

    channels: int
    patch: int
    side: int
    hidden: int
    heads: int
    inner: int
    windows: tuple[int | None, ...]
    outputs: int
    activation: str = "gelu"
    eps: float = _EPS
    bias: bool = True

    @property
    def pixels(self) -> int:
        """The side of the images."""
        return self.side * self.patch


@dataclass(frozen=True, slots=True)
class SamDecoderConfig:
    """Attention between image and prompts has a width of `hidden / narrower`. `masks`: how many
    answers there are to one prompt, beside the single one. `scorer`: width and depth of what says
    how good they are.
    """

    hidden: int
    heads: int
    inner: int
    layers: int
    narrower: int
    masks: int
    scorer: tuple[int, int]
    activation: str = "relu"
    eps: float = _EPS


class PlacedAttention(Module):
    """Attention in a square of `side` places, whose scores also tell how far apart places are.

    Rows and columns have tables of their own: Li et al., arXiv 2112.01526.
    """

    def __init__(self, config: SamEncoderConfig, side: int, dtype: Any = float32) -> None:
        hidden, heads = config.hidden, config.heads
        self.heads, self.side = heads, side
        self.q_proj, self.k_proj, self.v_proj = (
            Linear(hidden, hidden, config.bias, dtype) for _ in range(3)
        )
        self.o_proj = Linear(hidden, hidden, dtype=dtype)
        shape = 2 * side - 1, hidden // heads
        self.rows, self.columns = (init.parameter(shape, init.zeros, dtype) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, side, side, hidden) to the same shape."""
        square = self.side, self.side
        q, k, v = (self._heads(part(x)) for part in (self.q_proj, self.k_proj, self.v_proj))
        places = q.unflatten(2, square)
        at = np.arange(self.side)
        # The entry for each pair of rows, or columns; the middle one is for a place itself.
        pairs = at[:, None] - at + self.side - 1
        rows, columns = (
            self.read(table, q).cast(q.dtype)[pairs] for table in (self.rows, self.columns)
        )
        by_row = (places @ rows.mT).unsqueeze(-1)
        by_column = (places.transpose(2, 3) @ columns.mT).transpose(2, 3).unsqueeze(-2)
        scores = (q * (1 / math.sqrt(q.extents[-1].value))) @ k.mT
        scores = scores.unflatten(-1, square).unflatten(2, square) + by_row + by_column
        weights = scores.flatten(-2).flatten(2, 3).softmax(-1)
        attended = (weights @ v).transpose(1, 2).flatten(-2).unflatten(1, square)
        y: Tensor = self.o_proj(attended)
        return y

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, h, w, hidden) to (batch, heads, h * w, features)."""
        return x.flatten(1, 2).unflatten(-1, (self.heads, -1)).transpose(1, 2)


class SamLayer(Module):
    """Attention in windows or in all of the image, then a feed-forward part."""

    def __init__(self, config: SamEncoderConfig, window: int | None, dtype: Any = float32) -> None:
        self.window = window
        self.norm1, self.norm2 = (
            LayerNorm(config.hidden, config.eps, dtype=dtype) for _ in range(2)
        )
        self.attention = PlacedAttention(config, window or config.side, dtype)
        self.mlp = FeedForward(config.hidden, config.inner, config.activation, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, side, side, hidden) to the same shape."""
        normed = self.norm1(x)
        if self.window is None:
            attended = self.attention(normed)
        else:
            attended = self._in_windows(normed, self.window)
        x = x + attended
        y: Tensor = x + self.mlp(self.norm2(x))
        return y

    def _in_windows(self, x: Tensor, size: int) -> Tensor:
        """Attention within each square of `size`, of which the last ones are filled with zeros."""
        batch, side = x.extents[0], x.extents[1].value
        more = -side % size
        count = (side + more) // size
        x = x.pad([(0, 0), (0, more), (0, more), (0, 0)])
        x = x.unflatten(2, (count, size)).unflatten(1, (count, size)).transpose(2, 3)
        y: Tensor = self.attention(x.flatten(0, 2))
        y = y.unflatten(0, (batch, count, count)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return y[:, :side, :side]


class SamEncoder(Module):
    """Images to what a decoder reads, of a sixteenth of their size."""

    def __init__(self, config: SamEncoderConfig, dtype: Any = float32) -> None:
        self.config = config
        hidden, outputs = config.hidden, config.outputs
        self.patches = Conv2d(config.channels, hidden, config.patch, config.patch, dtype=dtype)
        self.positions = init.parameter((config.side, config.side, hidden), init.zeros, dtype)
        self.layers = ModuleList(SamLayer(config, window, dtype) for window in config.windows)
        self.conv1 = Conv2d(hidden, outputs, 1, bias=False, dtype=dtype)
        self.norm1 = ChannelNorm(outputs, _EPS, dtype=dtype)
        self.conv2 = Conv2d(outputs, outputs, 3, padding=1, bias=False, dtype=dtype)
        self.norm2 = ChannelNorm(outputs, _EPS, dtype=dtype)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, pixels, pixels) to (batch, outputs, side, side)."""
        x = self.patches(images).movedim(1, -1)
        x = x.cast(promote(x.dtype, float32))  # 16-bit weights, 32-bit values
        x = x + self.read(self.positions, x)
        for layer in self.layers:
            x = layer(x)
        encoded: Tensor = self.norm2(self.conv2(self.norm1(self.conv1(x.movedim(-1, 1)))))
        return encoded


class TwoWayLayer(Module):
    """Prompts look at each other, then at the image; then the image looks at them."""

    def __init__(self, config: SamDecoderConfig, first: bool, dtype: Any = float32) -> None:
        hidden, heads = config.hidden, config.heads
        self.first = first
        self.attention = MaskedAttention(hidden, heads, hidden // heads, dtype=dtype)
        self.to_image, self.to_prompts = (narrow_attention(config, dtype) for _ in range(2))
        self.mlp = FeedForward(hidden, config.inner, config.activation, dtype=dtype)
        self.norms = ModuleList(LayerNorm(hidden, config.eps, dtype=dtype) for _ in range(4))

    def forward(
        self, prompts: Tensor, image: Tensor, places: Tensor, grid: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Prompts (t, n, hidden) at `places`, and the image (t, h * w, hidden) at `grid`."""
        if self.first:  # prompts are nothing but their places yet
            prompts = self.attention(prompts)
        else:
            asked = self.attention.keys_values(prompts, places)
            prompts = prompts + self.attention(prompts + places, asked)
        prompts = self.norms[0](prompts)
        asked = self.to_image.keys_values(image, grid)
        prompts = self.norms[1](prompts + self.to_image(prompts + places, asked))
        prompts = self.norms[2](prompts + self.mlp(prompts))
        asked = self.to_prompts.keys_values(prompts, places)
        return prompts, self.norms[3](image + self.to_prompts(image + grid, asked))


def narrow_attention(config: SamDecoderConfig, dtype: Any) -> MaskedAttention:
    """Attention between image and prompts."""
    width = config.hidden // config.narrower
    return MaskedAttention(config.hidden, config.heads, width // config.heads, dtype=dtype)


class Perceptron(Module):
    """Linear layers of these sizes, with a ReLU between them."""

    def __init__(self, sizes: Sequence[int], dtype: Any = float32) -> None:
        self.layers = ModuleList(Linear(a, b, dtype=dtype) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """(..., sizes[0]) to (..., sizes[-1])."""
        for number, layer in enumerate(self.layers):
            x = layer(x.relu() if number else x)
        return x


class Sam(Module):
    """The encoder of images, and the decoder of masks."""

    def __init__(
        self, encoder: SamEncoderConfig, decoder: SamDecoderConfig, dtype: Any = float32
    ) -> None:
        self.config, self.encoder = decoder, SamEncoder(encoder, dtype)
        hidden = decoder.hidden
        # Places are told by waves in random directions: Tancik et al., arXiv 2006.10739.
        self.directions = init.parameter((2, hidden // 2), init.normal, dtype)
        self.kinds = init.parameter((KINDS + 1, hidden), init.normal, dtype)
        self.no_mask = init.parameter((hidden,), init.normal, dtype)
        self.answers = init.parameter((decoder.masks + 2, hidden), init.normal, dtype)
        self.layers = ModuleList(
            TwoWayLayer(decoder, number == 0, dtype) for number in range(decoder.layers)
        )
        self.last = narrow_attention(decoder, dtype)
        self.last_norm = LayerNorm(hidden, dtype=dtype)
        self.up1 = ConvTranspose2d(hidden, hidden // 4, 2, 2, dtype=dtype)
        self.up_norm = ChannelNorm(hidden // 4, _EPS, dtype=dtype)
        self.up2 = ConvTranspose2d(hidden // 4, hidden // 8, 2, 2, dtype=dtype)
        self.readers = ModuleList(
            Perceptron((hidden, hidden, hidden, hidden // 8), dtype)
            for _ in range(decoder.masks + 1)
        )
        width, depth = decoder.scorer
        self.scorer = Perceptron((hidden, *[width] * (depth - 1), decoder.masks + 1), dtype)

    def encode(self, images: Tensor) -> Tensor:
        """(batch, channels, pixels, pixels) to (batch, hidden, side, side)."""
        encoded: Tensor = self.encoder(images)
        return encoded

    def forward(self, encoded: Tensor, points: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
        """One encoded image (1, hidden, h, w), and what asks for t things: points (t, n, 2) of x
        and y in pixels of the prepared image, and their kinds (t, n) in int32.

        Logits of masks (t, masks + 1, 4 h, 4 w), the single answer first, and how well each is
        thought to fit (t, masks + 1).
        """
        count, (height, width) = points.extents[0], encoded.extents[2:]
        answers = self.read(self.answers, encoded).cast(encoded.dtype)
        places = concat((answers.expand(count, *answers.extents), self._prompts(points, kinds)), 1)
        grid = self._waves(_centres(height.value, width.value, encoded)).flatten(0, 1)
        image = encoded.flatten(2).mT + self.read(self.no_mask, encoded)
        image = image.expand(count, *image.extents[1:])
        prompts = places
        for layer in self.layers:
            prompts, image = layer(prompts, image, places, grid)
        asked = self.last.keys_values(image, grid)
        prompts = self.last_norm(prompts + self.last(prompts + places, asked))
        picture = image.mT.unflatten(-1, (height, width))
        picture = self.up2(self.up_norm(self.up1(picture)).gelu()).gelu()
        # Each answer becomes a vector; where it points along a pixel's is the mask.
        vectors = stack(
            [reader(prompts[:, 1 + number]) for number, reader in enumerate(self.readers)], 1
        )
        masks = (vectors @ picture.flatten(2)).unflatten(-1, picture.extents[2:])
        return masks, self.scorer(prompts[:, 0])

    def _prompts(self, points: Tensor, kinds: Tensor) -> Tensor:
        """What each point and its kind tell: (t, n, hidden)."""
        table = self.read(self.kinds, points).cast(points.dtype)
        waves = self._waves((points + 0.5) * (1 / self.encoder.config.pixels))
        is_nothing = (kinds == NOTHING).unsqueeze(-1)
        return table[kinds] + where(is_nothing, 0.0, waves)

    def _waves(self, points: Tensor) -> Tensor:
        """Points (..., 2) from 0 to 1 as sines and cosines, (..., hidden)."""
        directions = self.read(self.directions, points).cast(points.dtype)
        angles = (points * 2 - 1) @ directions * (2 * math.pi)
        return concat((angles.sin(), angles.cos()), -1)


def _centres(height: int, width: int, like: Tensor) -> Tensor:
    """x and y of the middle of each place, from 0 to 1: (height, width, 2)."""
    rows, columns = ((np.arange(n) + 0.5) / n for n in (height, width))
    x, y = np.meshgrid(columns, rows)
    return like.graph.constant(np.stack((x, y), -1).astype(np.float32))

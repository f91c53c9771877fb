"""Blocks of YOLOv8 and YOLO11, with the names of their parts as in Ultralytics' files.

Wang et al., arXiv 1911.11929 (partial stages); He et al., arXiv 1406.4729 (pyramid pooling).
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.frontend.movement.views import concat
from luminal.frontend.tensor import Tensor
from luminal.frontend.windows.pooling import max_pool2d
from luminal.models.convolutional import ConvConfig, ConvNorm
from luminal.nn import Module, ModuleList, Sequential

NORM_EPS = 1e-3  # of all


def conv(
    inputs: int,
    outputs: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    activation: str | None = "silu",
) -> ConvNorm:
    """A convolution with its norm and activation."""
    return ConvNorm(
        ConvConfig(
            inputs, outputs, kernel, stride, groups, activation=activation, norm_eps=NORM_EPS
        )
    )


class Concat(Module):
    """Channels of several inputs, one after the other."""

    def forward(self, *inputs: Tensor) -> Tensor:
        """(batch, channels, h, w) each to (batch, all channels, h, w)."""
        return concat(inputs, 1)


class Bottleneck(Module):
    """Two 3 x 3 convolutions, by default added to the input. `share`: of channels between them."""

    def __init__(
        self, inputs: int, outputs: int, shortcut: bool = True, share: float = 0.5
    ) -> None:
        inner = int(outputs * share)
        self.cv1, self.cv2 = conv(inputs, inner, 3), conv(inner, outputs, 3)
        self.added = shortcut and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, outputs, h, w)."""
        y: Tensor = self.cv2(self.cv1(x))
        return x + y if self.added else y


class PartialStage(Module):
    """Half of the channels pass `parts`; all that came between is joined: YOLOv8's C2f."""

    def __init__(
        self, inputs: int, outputs: int, parts: Sequence[Module], share: float = 0.5
    ) -> None:
        inner = int(outputs * share)
        self.cv1 = conv(inputs, 2 * inner)
        self.cv2 = conv((2 + len(parts)) * inner, outputs)
        self.m = ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, outputs, h, w)."""
        joined = list(self.cv1(x).chunk(2, 1))
        for part in self.m:
            joined.append(part(joined[-1]))
        y: Tensor = self.cv2(concat(joined, 1))
        return y


class SplitBottlenecks(Module):
    """Bottlenecks beside a convolution of the input: C3k."""

    def __init__(self, channels: int, count: int = 2, shortcut: bool = True) -> None:
        inner = channels // 2
        self.cv1, self.cv2 = conv(channels, inner), conv(channels, inner)
        self.cv3 = conv(2 * inner, channels)
        self.m = Sequential(*(Bottleneck(inner, inner, shortcut, 1.0) for _ in range(count)))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) to the same shape."""
        y: Tensor = self.cv3(concat((self.m(self.cv1(x)), self.cv2(x)), 1))
        return y


class PyramidPooling(Module):
    """The greatest of growing neighbourhoods beside each other: SPPF."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.cv1 = conv(inputs, inputs // 2)
        self.cv2 = conv(inputs // 2 * 4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, outputs, h, w)."""
        joined = [self.cv1(x)]
        # Windows of 5, 9 and 13, each made of the one before: the maximum of maxima is that of the
        # whole.
        for _ in range(3):
            joined.append(max_pool2d(joined[-1], 5, 1, 2))
        y: Tensor = self.cv2(concat(joined, 1))
        return y


class PlaceAttention(Module):
    """Every place attends to all; a convolution of the values tells places apart."""

    def __init__(self, channels: int, heads: int) -> None:
        self.heads, self.head_dim = heads, channels // heads
        self.key_dim = self.head_dim // 2
        self.qkv = conv(channels, channels + 2 * self.key_dim * heads, activation=None)
        self.proj = conv(channels, channels, activation=None)
        self.pe = conv(channels, channels, 3, groups=channels, activation=None)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) to the same shape."""
        height, width = x.extents[2:]
        sizes = [self.key_dim, self.key_dim, self.head_dim]
        heads = self.qkv(x).flatten(2).unflatten(1, (self.heads, sum(sizes)))
        q, k, v = heads.split(sizes, 2)
        weights = (q.mT * self.key_dim**-0.5 @ k).softmax(-1)
        attended, values = (
            pixels.flatten(1, 2).unflatten(-1, (height, width)) for pixels in (v @ weights.mT, v)
        )
        y: Tensor = self.proj(attended + self.pe(values))
        return y


class AttentionBlock(Module):
    """Attention and a feed-forward part, each added to its input: PSABlock."""

    def __init__(self, channels: int) -> None:
        self.attn = PlaceAttention(channels, max(channels // 64, 1))
        self.ffn = Sequential(
            conv(channels, 2 * channels), conv(2 * channels, channels, activation=None)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) to the same shape."""
        x = x + self.attn(x)
        y: Tensor = x + self.ffn(x)
        return y


class PartialAttention(Module):
    """Half of the channels pass attention blocks: C2PSA."""

    def __init__(self, channels: int, count: int) -> None:
        inner = channels // 2
        self.cv1, self.cv2 = conv(channels, 2 * inner), conv(2 * inner, channels)
        self.m = Sequential(*(AttentionBlock(inner) for _ in range(count)))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) to the same shape."""
        a, b = self.cv1(x).chunk(2, 1)
        y: Tensor = self.cv2(concat((a, self.m(b)), 1))
        return y

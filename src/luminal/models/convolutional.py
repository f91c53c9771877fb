"""Convolutional networks of blocks that a configuration lists: ResNet and the MobileNets.

He et al., arXiv 1512.03385; Howard et al., arXiv 1704.04861; Sandler et al., arXiv 1801.04381.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.base.dtypes import float32
from luminal.base.records import dataclass
from luminal.frontend.tensor import Tensor
from luminal.frontend.windows.pooling import max_pool2d
from luminal.nn import BatchNorm2d, Conv2d, Module, ModuleList
from luminal.nn.feed_forward import activation_of


@dataclass(frozen=True, slots=True)
class ConvConfig:
    """A convolution with a square kernel, its norm, and an activation where there is one.

    `same`: as many zeros around as make output sizes input / stride, rounded up, with the odd one
    behind (TensorFlow's); else half a kernel on each side.
    """

    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    groups: int = 1
    dilation: int = 1
    activation: str | None = "relu"
    norm_eps: float = 1e-5
    same: bool = False


class ConvNorm(Module):
    """Convolution, batch norm, activation."""

    def __init__(self, config: ConvConfig, dtype: Any = float32) -> None:
        self.config = config
        padding = 0 if config.same else (config.kernel - 1) // 2 * config.dilation
        self.conv = Conv2d(
            config.inputs,
            config.outputs,
            config.kernel,
            config.stride,
            padding,
            config.dilation,
            config.groups,
            bias=False,
            dtype=dtype,
        )
        self.norm = BatchNorm2d(config.outputs, config.norm_eps, dtype=dtype)
        name = config.activation
        self.activation = None if name is None else activation_of(name)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, outputs, ...)."""
        if self.config.same:
            x = x.pad([(0, 0), (0, 0), *(self._around(n.value) for n in x.extents[2:])])
        y: Tensor = self.norm(self.conv(x))
        return y if self.activation is None else self.activation(y)

    def _around(self, size: int) -> tuple[int, int]:
        """Zeros before and after."""
        config = self.config
        # TensorFlow's rule depends on the size, so it is computed for each input and no option of a
        # convolution.
        total = max(config.kernel - (size % config.stride or config.stride), 0)
        return total // 2 * config.dilation, (total - total // 2) * config.dilation


@dataclass(frozen=True, slots=True)
class BlockConfig:
    """Convolutions one after the other. `residual`: the input is added to what comes out, through
    a convolution of its own where the shapes differ, then follows `activation`.
    `pooled`: the greatest of every 3 x 3, one in 2 x 2, at the end.
    """

    convs: tuple[ConvConfig, ...]
    residual: bool = False
    activation: str | None = None
    pooled: bool = False

    @property
    def shortcut(self) -> ConvConfig | None:
        """The convolution that the input goes through."""
        first, last = self.convs[0], self.convs[-1]
        stride = max(conv.stride for conv in self.convs)
        if not self.residual or (first.inputs == last.outputs and stride == 1):
            return None
        return ConvConfig(
            first.inputs, last.outputs, 1, stride, activation=None, norm_eps=last.norm_eps
        )


class Block(Module):
    """Convolutions one after the other, as a BlockConfig describes them."""

    def __init__(self, config: BlockConfig, dtype: Any = float32) -> None:
        self.residual, self.pooled = config.residual, config.pooled
        self.convs = ModuleList(ConvNorm(conv, dtype) for conv in config.convs)
        self.shortcut = ConvNorm(config.shortcut, dtype) if config.shortcut else None
        name = config.activation
        self.activation = None if name is None else activation_of(name)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) to (batch, outputs, ...)."""
        y = x
        for conv in self.convs:
            y = conv(y)
        if self.residual:
            y = y + (x if self.shortcut is None else self.shortcut(x))
        if self.activation is not None:
            y = self.activation(y)
        return max_pool2d(y, 3, 2, 1) if self.pooled else y


class ConvNet(Module):
    """Images to one vector each: the mean of the last block's output, `width` numbers."""

    def __init__(self, blocks: Sequence[BlockConfig], dtype: Any = float32) -> None:
        self.width = blocks[-1].convs[-1].outputs
        self.blocks = ModuleList(Block(block, dtype) for block in blocks)

    def forward(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to (batch, width)."""
        return self.features(images).mean((-2, -1))

    def features(self, images: Tensor) -> Tensor:
        """(batch, channels, height, width) to the last block's output (batch, width, ...)."""
        x = images
        for block in self.blocks:
            x = block(x)
        return x

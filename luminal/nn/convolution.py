"""Convolution and pooling layers over (batch, channels, height, width)."""

from __future__ import annotations

from typing import Any

from luminal.dtypes import float32
from luminal.frontend.tensor import Tensor
from luminal.frontend.windows import Ints as Pair
from luminal.hlir.state import Parameter
from luminal.nn.module import Module


class Conv2d(Module):
    """Cross-correlation with `weight` (out, in / groups, kh, kw), plus `bias`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Any = float32,
    ) -> None:
        kernel = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
        self.weight = Parameter((out_channels, in_channels // groups, *kernel), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in, h, w) to (batch, out, oh, ow)."""
        weight = self.read(self.weight, x)
        bias = None if self.bias is None else self.read(self.bias, x)
        return x.conv2d(weight, bias, self.stride, self.padding, self.dilation, self.groups)


class MaxPool2d(Module):
    """The greatest of each window."""

    def __init__(
        self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, dilation: Pair = 1
    ) -> None:
        self.options = kernel_size, stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) to (batch, channels, oh, ow)."""
        return x.max_pool2d(*self.options)


class AvgPool2d(Module):
    """The mean of each window."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        count_include_pad: bool = True,
    ) -> None:
        self.options = kernel_size, stride, padding, False, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, h, w) to (batch, channels, oh, ow)."""
        return x.avg_pool2d(*self.options)

"""Convolutions and transposed convolutions over one to three spatial dims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from luminal.base.dtypes import float32
from luminal.base.errors import InputError, ShapeError
from luminal.frontend.handle import describe
from luminal.frontend.tensor import Tensor
from luminal.frontend.windows import convolution
from luminal.frontend.windows.unfold import Ints, Padding, per_dim
from luminal.nn import init
from luminal.nn.linear import near_zero
from luminal.nn.module import Module

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Window(Module):
    """What all of them share: sizes, and Parameters `weight` and `bias`."""

    rank: ClassVar[int]
    turned: ClassVar[bool] = False
    """Whether `weight` is (in, out / groups, ...) for (out, in / groups, ...)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        groups: int,
        bias: bool,
        dtype: Any,
    ) -> None:
        name = type(self).__name__
        if in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"{name}: {in_channels} and {out_channels} channels do not divide into "
                f"{groups} groups; choose groups that divide both"
            )
        self.kernel_size = per_dim(name, "kernel_size", kernel_size, self.rank)
        self.groups = groups
        outer, inner = (in_channels, out_channels) if self.turned else (out_channels, in_channels)
        shape = (outer, inner // groups, *self.kernel_size)
        # kaiming_uniform with a = sqrt(5), PyTorch's default, is uniform within 1 / sqrt(fan_in).
        draw = near_zero(shape[1] * math.prod(self.kernel_size))
        self.weight = init.parameter(shape, draw, dtype)
        self.bias = init.parameter((out_channels,), draw, dtype) if bias else None


class _Conv(_Window):
    """Cross-correlation with `weight` (out, in / groups, *kernel), plus `bias`.

    `padding`: ints, "same" or "valid"; `padding_mode`: what stands there, by default zeros.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Padding = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        dtype: Any = float32,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, groups, bias, dtype)
        name = type(self).__name__
        if padding_mode not in PADDING_MODES:
            modes = ", ".join(PADDING_MODES)
            raise InputError(f"{name}: padding_mode {padding_mode!r} is not among {modes}")
        self.stride = per_dim(name, "stride", stride, self.rank)
        self.dilation = per_dim(name, "dilation", dilation, self.rank)
        self.padding, self.padding_mode = padding, padding_mode

    def forward(self, x: Tensor) -> Tensor:
        """([batch,] in, *sizes) to ([batch,] out, *counts)."""
        weight, bias = self.read(self.weight, x), self.read(self.bias, x)
        padding = self.padding
        if self.padding_mode != "zeros":
            # Other paddings are views of x in front of a convolution without padding.
            x, padding = x.pad(self._pairs(x), mode=self.padding_mode), 0
        conv = getattr(convolution, f"conv{self.rank}d")
        options = self.stride, padding, self.dilation, self.groups
        return conv(x, weight, bias, *options)  # type: ignore[no-any-return]

    def _pairs(self, x: Tensor) -> list[tuple[int, int]]:
        """(before, after) for each dim of x."""
        pairs: list[tuple[int, int]] = [(0, 0)] * (x.ndim - self.rank)
        if isinstance(self.padding, str):
            for size, gap in zip(self.kernel_size, self.dilation, strict=True):
                total = gap * (size - 1) if self.padding == "same" else 0
                # An odd number of zeros has one more behind, as PyTorch has it.
                pairs.append((total // 2, total - total // 2))
        else:
            amounts = per_dim(type(self).__name__, "padding", self.padding, self.rank, 0)
            pairs += [(n, n) for n in amounts]
        return pairs


class Conv1d(_Conv):
    """Convolution of ([batch,] channels, length)."""

    rank = 1


class Conv2d(_Conv):
    """Convolution of ([batch,] channels, height, width)."""

    rank = 2


class Conv3d(_Conv):
    """Convolution of ([batch,] channels, depth, height, width)."""

    rank = 3


class _ConvTranspose(_Window):
    """The transpose of a convolution, with `weight` (in, out / groups, *kernel), plus `bias`."""

    turned = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Ints,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Ints = 1,
        padding_mode: str = "zeros",
        dtype: Any = float32,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, groups, bias, dtype)
        name = type(self).__name__
        if padding_mode != "zeros":
            raise InputError(f"{name}: padding_mode {padding_mode!r}; it takes only 'zeros'")
        self.stride = per_dim(name, "stride", stride, self.rank)
        self.padding = per_dim(name, "padding", padding, self.rank, 0)
        self.output_padding = per_dim(name, "output_padding", output_padding, self.rank, 0)
        self.dilation = per_dim(name, "dilation", dilation, self.rank)

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """([batch,] in, *sizes) to ([batch,] out, *counts).

        `output_size` chooses among the counts that a convolution of this stride takes to `sizes`.
        """
        weight, bias = self.read(self.weight, x), self.read(self.bias, x)
        extra = self.output_padding if output_size is None else self._extra(x, output_size)
        conv = getattr(convolution, f"conv_transpose{self.rank}d")
        options = self.stride, self.padding, extra, self.groups, self.dilation
        return conv(x, weight, bias, *options)  # type: ignore[no-any-return]

    def _extra(self, x: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output_padding that gives `output_size`."""
        extra = []
        for k, wanted in enumerate(output_size[-self.rank :]):
            stride, span = self.stride[k], self.dilation[k] * (self.kernel_size[k] - 1) + 1
            extent = x.extents[x.ndim - self.rank + k]
            least = (extent - 1) * stride - 2 * self.padding[k] + span
            if not least.is_const or not least.value <= wanted < least.value + stride:
                raise ShapeError(
                    f"{type(self).__name__}: output_size {tuple(output_size)} of {describe(x)}; "
                    f"dim {k} takes {least} to {least + stride - 1}"
                )
            extra.append(wanted - least.value)
        return tuple(extra)


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of ([batch,] channels, length)."""

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of ([batch,] channels, height, width)."""

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of ([batch,] channels, depth, height, width)."""

    rank = 3

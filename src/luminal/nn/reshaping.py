"""Layers that move elements and compute nothing: Flatten, PixelShuffle, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from luminal.frontend.tensor import Tensor
from luminal.frontend.windows.unfold import (
    Ints,
    channel_shuffle,
    fold,
    per_dim,
    pixel_shuffle,
    pixel_unshuffle,
    unfold,
)
from luminal.nn.module import Module


class Flatten(Module):
    """The dims start_dim .. end_dim as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """`x` with these dims as one."""
        return x.flatten(self.start_dim, self.end_dim)


class Unflatten(Module):
    """One dim as several."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.sizes = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """`x` with this dim as several."""
        return x.unflatten(self.dim, self.sizes)


class PixelShuffle(Module):
    """(..., c * r * r, h, w) to (..., c, h * r, w * r). Shi et al., arXiv 1609.05158."""

    def __init__(self, upscale_factor: int) -> None:
        self.factor = upscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """The picture with its channels and pixels exchanged, as the class says."""
        return pixel_shuffle(x, self.factor)


class PixelUnshuffle(Module):
    """(..., c, h * r, w * r) to (..., c * r * r, h, w)."""

    def __init__(self, downscale_factor: int) -> None:
        self.factor = downscale_factor

    def forward(self, x: Tensor) -> Tensor:
        """The picture with its channels and pixels exchanged, as the class says."""
        return pixel_unshuffle(x, self.factor)


class ChannelShuffle(Module):
    """Channels of `groups` groups dealt out in turn. Zhang et al., arXiv 1707.01083."""

    def __init__(self, groups: int) -> None:
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, ...) to the same shape."""
        return channel_shuffle(x, self.groups)


class Unfold(Module):
    """Windows as columns, im2col: (batch, c, h, w) to (batch, c * kh * kw, windows)."""

    def __init__(
        self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> None:
        self.options = kernel_size, dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        """See the class; the batch may be missing."""
        return unfold(x, *self.options)


class Fold(Module):
    """The sum of windows at their places, col2im: the other way than `Unfold`."""

    def __init__(
        self,
        output_size: int | tuple[int, int],
        kernel_size: Ints,
        dilation: Ints = 1,
        padding: Ints = 0,
        stride: Ints = 1,
    ) -> None:
        self.output_size = output_size
        self.options = kernel_size, dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        """(batch, c * kh * kw, windows) to (batch, c, *output_size); the batch may be missing."""
        return fold(x, self.output_size, *self.options)


# --- padding --------------------------------------------------------------------------------------


class _Pad(Module):
    """`padding`: one int for all sides, or (before, after) for each dim from the last on."""

    rank: ClassVar[int]
    mode: ClassVar[str] = "constant"
    value: float = 0.0

    def __init__(self, padding: Ints) -> None:
        sides = 2 * self.rank
        self.padding = per_dim(type(self).__name__, "padding", padding, sides, least=-(2**31))

    def forward(self, x: Tensor) -> Tensor:
        """([batch,] channels, *sizes) with more on both ends of each size."""
        value = self.value if self.mode == "constant" else None
        return x.pad(self.padding, self.mode, value)


class _ConstantPad(_Pad):
    """Padding with one number on all sides."""

    def __init__(self, padding: Ints, value: float) -> None:
        super().__init__(padding)
        self.value = value


class ConstantPad1d(_ConstantPad):
    """The last dim continued with a number."""

    rank = 1


class ConstantPad2d(_ConstantPad):
    """The last two dims continued with a number."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """The last three dims continued with a number."""

    rank = 3


class ZeroPad1d(_Pad):
    """The last dim continued with zeros."""

    rank = 1


class ZeroPad2d(_Pad):
    """The last two dims continued with zeros."""

    rank = 2


class ZeroPad3d(_Pad):
    """The last three dims continued with zeros."""

    rank = 3


class ReflectionPad1d(_Pad):
    """The last dim continued with a mirror image, without the edge."""

    rank = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """The last two dims continued with a mirror image, without the edge."""

    rank = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """The last three dims continued with a mirror image, without the edge."""

    rank = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """The last dim continued with the nearest element."""

    rank = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """The last two dims continued with the nearest element."""

    rank = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """The last three dims continued with the nearest element."""

    rank = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """The last dim continued with what stands at the other end."""

    rank = 1
    mode = "circular"


class CircularPad2d(_Pad):
    """The last two dims continued with what stands at the other end."""

    rank = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """The last three dims continued with what stands at the other end."""

    rank = 3
    mode = "circular"

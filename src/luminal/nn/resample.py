"""Layers that change the resolution."""

from __future__ import annotations

from luminal.frontend.tensor import Tensor
from luminal.frontend.windows.interpolate import Mode, Scale, Size, interpolate
from luminal.nn.module import Module


class Upsample(Module):
    """The spatial dims resized, to `size` or by `scale_factor`; modes as for `interpolate`."""

    def __init__(
        self,
        size: Size | None = None,
        scale_factor: Scale | None = None,
        mode: Mode = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        self.sizes = size, scale_factor
        self.mode = mode
        self.align_corners, self.recompute = align_corners, recompute_scale_factor

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, *sizes) to (batch, channels, *new sizes)."""
        return interpolate(x, *self.sizes, self.mode, self.align_corners, self.recompute)


class UpsamplingNearest2d(Upsample):
    """`Upsample` of two dims by the nearest element."""

    def __init__(self, size: Size | None = None, scale_factor: Scale | None = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` of two dims by straight lines, corners aligned."""

    def __init__(self, size: Size | None = None, scale_factor: Scale | None = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)

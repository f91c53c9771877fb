"""Pooling layers over one to three spatial dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from luminal.frontend.tensor import Tensor
from luminal.frontend.windows import pooling
from luminal.frontend.windows import unfold as unpooling
from luminal.frontend.windows.pooling import Sizes
from luminal.frontend.windows.unfold import Ints
from luminal.nn.module import Module


class _Pool(Module):
    """Calls one function of `frontend.windows.pooling` with the options it was made with."""

    function: ClassVar[str]
    options: tuple[Any, ...]

    def forward(self, x: Tensor) -> Any:
        """([batch,] channels, *sizes) to ([batch,] channels, *counts)."""
        return getattr(pooling, self.function)(x, *self.options)


class _MaxPool(_Pool):
    """The greatest of each window; with `return_indices` also where it was found."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        self.options = kernel_size, stride, padding, dilation, ceil_mode, return_indices


class MaxPool1d(_MaxPool):
    """Windows of the last dim."""

    function = "max_pool1d"


class MaxPool2d(_MaxPool):
    """Windows of the last two dims."""

    function = "max_pool2d"


class MaxPool3d(_MaxPool):
    """Windows of the last three dims."""

    function = "max_pool3d"


class AvgPool1d(_Pool):
    """The mean of each window of the last dim."""

    function = "avg_pool1d"

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        self.options = kernel_size, stride, padding, ceil_mode, count_include_pad


class _AvgPool(_Pool):
    """The mean of each window; `divisor_override` replaces the number of its elements."""

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        sizes = kernel_size, stride, padding
        self.options = (*sizes, ceil_mode, count_include_pad, divisor_override)


class AvgPool2d(_AvgPool):
    """Windows of the last two dims."""

    function = "avg_pool2d"


class AvgPool3d(_AvgPool):
    """Windows of the last three dims."""

    function = "avg_pool3d"


class _LPPool(_Pool):
    """(sum of x ** norm_type) ** (1 / norm_type) of each window."""

    def __init__(
        self,
        norm_type: float,
        kernel_size: Ints,
        stride: Ints | None = None,
        ceil_mode: bool = False,
    ) -> None:
        self.options = norm_type, kernel_size, stride, ceil_mode


class LPPool1d(_LPPool):
    """Windows of the last dim."""

    function = "lp_pool1d"


class LPPool2d(_LPPool):
    """Windows of the last two dims."""

    function = "lp_pool2d"


class LPPool3d(_LPPool):
    """Windows of the last three dims."""

    function = "lp_pool3d"


# --- adaptive -------------------------------------------------------------------------------------


class _AdaptivePool(Module):
    """Pooling over as many windows of nearly equal size as asked for; None: as many as elements."""

    function: ClassVar[str]

    def __init__(self, output_size: Sizes) -> None:
        self.options: tuple[Any, ...] = (output_size,)

    def forward(self, x: Tensor) -> Any:
        """([batch,] channels, *sizes) to ([batch,] channels, *output_size)."""
        return getattr(pooling, self.function)(x, *self.options)


class AdaptiveAvgPool1d(_AdaptivePool):
    """Means of windows of the last dim."""

    function = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptivePool):
    """Means of windows of the last two dims."""

    function = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptivePool):
    """Means of windows of the last three dims."""

    function = "adaptive_avg_pool3d"


class _AdaptiveMaxPool(_AdaptivePool):
    """The greatest of each window; with `return_indices` also where it was found."""

    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None:
        self.options = output_size, return_indices


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Windows of the last dim."""

    function = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Windows of the last two dims."""

    function = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Windows of the last three dims."""

    function = "adaptive_max_pool3d"


# --- the other way --------------------------------------------------------------------------------


class _MaxUnpool(Module):
    """The values of a MaxPool with `return_indices` back where they were, 0 elsewhere."""

    function: ClassVar[str]

    def __init__(self, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0) -> None:
        self.options = kernel_size, stride, padding

    def forward(
        self, x: Tensor, indices: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        """Both ([batch,] channels, *counts), to ([batch,] channels, *sizes).

        `output_size` says which of the sizes that pool to `counts`; by default the least.
        """
        unpool = getattr(unpooling, self.function)
        return unpool(x, indices, *self.options, output_size)  # type: ignore[no-any-return]


class MaxUnpool1d(_MaxUnpool):
    """The inverse of MaxPool1d: values at their positions in the last dim, 0 elsewhere."""

    function = "max_unpool1d"


class MaxUnpool2d(_MaxUnpool):
    """The inverse of MaxPool2d: values at their positions in the last two dims, 0 elsewhere."""

    function = "max_unpool2d"


class MaxUnpool3d(_MaxUnpool):
    """The inverse of MaxPool3d: values at their positions in the last three dims, 0 elsewhere."""

    function = "max_unpool3d"

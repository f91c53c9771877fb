"""Convolution in one, two and three dims: sums of products over windows of the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from luminal.dtypes import DType
from luminal.errors import ShapeError
from luminal.frontend.binary import promotion
from luminal.frontend.handle import describe, together
from luminal.frontend.linalg import product_dtype, sum_products
from luminal.frontend.movement import permute, reshape
from luminal.frontend.precision import rounds
from luminal.frontend.windows import (
    Ints,
    Padding,
    paddings,
    per_dim,
    require_fits,
    sliding,
    windowed,
    with_batch,
)
from luminal.shape.expression import Expression, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


@rounds("x", "weight")
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of x (batch, in, w) with weight (out, in/groups, kw); see `conv2d`."""
    return _conv(Operands.of("conv1d", 1, x, weight, bias), stride, padding, dilation, groups)


@rounds("x", "weight")
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of x (batch, in, h, w) with weight (out, in/groups, kh, kw), as PyTorch.

    `padding` is zeros on both sides, "same" (stride 1) or "valid"; the batch may be missing.
    Sum over (in/groups, kh, kw) of View(x) * weight. Raises ShapeError where shapes do not fit.
    """
    return _conv(Operands.of("conv2d", 2, x, weight, bias), stride, padding, dilation, groups)


@rounds("x", "weight")
def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of x (batch, in, d, h, w) with weight (out, in/groups, kd, kh, kw)."""
    return _conv(Operands.of("conv3d", 3, x, weight, bias), stride, padding, dilation, groups)


def _conv(given: Operands, stride: Ints, padding: Padding, dilation: Ints, groups: int) -> Tensor:
    """The windows (batch, groups, out/groups, *counts, in/groups, *kernel) times the kernels."""
    what, rank, x = given.what, given.rank, given.x
    steps = per_dim(what, "stride", stride, rank)
    gaps = per_dim(what, "dilation", dilation, rank)
    out, inner, *kernel = given.weight.extents
    per_group = given.channels(inner * groups, out, groups)
    pads = paddings(what, padding, kernel, steps, gaps)
    windows = []
    for k in range(rank):
        require_fits(what, x, 2 + k, gaps[k] * (kernel[k] - 1) + 1, pads[k])
        windows.append(sliding(x.extents[2 + k], kernel[k], steps[k], pads[k], gaps[k]))
    taps = windowed(x, windows)
    batch, _, *counts = taps.extents[: rank + 2]
    patches = reshape(taps, batch, groups, inner, 1, *counts, *kernel)
    order = (0, 1, 3, *range(4, 4 + rank), 2, *range(4 + rank, 4 + 2 * rank))
    ones = (const(1),) * rank
    kernels = reshape(given.weight, groups, per_group, *ones, inner, *kernel)
    total = sum_products(permute(patches, order), kernels, *range(3 + rank, 4 + 2 * rank))
    return given.finished(reshape(total, batch, out, *counts))


class Operands(NamedTuple):
    """What a convolution takes, in the dtype it computes in, with a batch."""

    what: str
    rank: int  # the number of spatial dims
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    dtype: DType  # of the result
    unbatched: bool

    @classmethod
    def of(cls, what: str, rank: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> Operands:
        """Raises ShapeError where ranks do not fit."""
        graph, values = together(x, weight, *(() if bias is None else (bias,)))
        x, weight, *rest = (graph.wrap(value) for value in values)
        x, unbatched = with_batch(what, x, rank)
        if weight.ndim != rank + 2:
            raise ShapeError(
                f"{what}: the weight has two dims of channels and {rank} of the kernel; "
                f"got {describe(weight)}"
            )
        common = promotion((x, weight))
        work = product_dtype(common)
        result = common if common.is_storage else work
        bias = rest[0].cast(work) if rest else None
        return cls(what, rank, x.cast(work), weight.cast(work), bias, result, unbatched)

    def channels(self, wanted: Expression, out: Expression, groups: int) -> Expression:
        """Channels of the result per group; raises ShapeError where channels do not fit."""
        found = self.x.extents[1]
        per_group = out.exact_div(groups) if groups > 0 else None
        if wanted != found or per_group is None or found.exact_div(groups) is None:
            raise ShapeError(
                f"{self.what}: {describe(self.weight)} in {groups} groups takes {wanted} "
                f"channels and gives {out}; {describe(self.x)} has {found}"
            )
        if self.bias is not None and self.bias.extents != (out,):
            raise ShapeError(
                f"{self.what}: the bias is {describe(self.bias)}; it takes ({out},), one for each "
                "channel of the result"
            )
        return per_group

    def finished(self, result: Tensor) -> Tensor:
        """The result with its bias, in its dtype, without the batch if there was none."""
        if self.bias is not None:
            result = result + reshape(self.bias, -1, *(1,) * self.rank)
        result = result.cast(self.dtype)
        return result.squeeze(0) if self.unbatched else result

"""Transposed convolution: the gradient of a convolution, without products with inserted zeros.

Input position i and tap k meet at output position o where `i * stride + k * dilation = q`, with
`q = o + padding`. The taps that reach q are those with `k * dilation = q (mod stride)`: one in
`phases = stride / gcd(stride, dilation)`, that is `k = first(q % stride) + t * phases`, and tap t
reads position `i = (q - k * dilation) / stride`. With o split into (block, residue), q % stride
depends on the residue only: a dense product for each residue, whose results interleave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from luminal.errors import ShapeError
from luminal.frontend.convolution import Operands
from luminal.frontend.derivatives import differentiated
from luminal.frontend.handle import along
from luminal.frontend.linalg import sum_products
from luminal.frontend.movement import narrow, reshape, view_of
from luminal.frontend.precision import rounds
from luminal.frontend.windows import (
    Ints,
    Reaching,
    per_dim,
    phases,
    reaching,
    sliding,
    windowed,
)
from luminal.records import dataclass
from luminal.shape import view as views
from luminal.shape.expression import Expression, all_of, ceil_div, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


@rounds("x", "weight")
def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Transposed convolution of x (batch, in, w) with weight (in, out/groups, kw)."""
    given = Operands.of("conv_transpose1d", 1, x, weight, bias)
    return _transposed(given, stride, padding, output_padding, groups, dilation)


@rounds("x", "weight")
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Transposed convolution of x (batch, in, h, w) with weight (in, out/groups, kh, kw).

    An extent n becomes (n-1) * stride - 2 * padding + dilation * (k-1) + output_padding + 1.
    Sum over (in/groups, taps) of View(x) * View(weight); raises ShapeError where shapes do not fit.
    """
    given = Operands.of("conv_transpose2d", 2, x, weight, bias)
    return _transposed(given, stride, padding, output_padding, groups, dilation)


@rounds("x", "weight")
def conv_transpose3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """Transposed convolution of x (batch, in, d, h, w) with weight (in, out/groups, kd, kh, kw)."""
    given = Operands.of("conv_transpose3d", 3, x, weight, bias)
    return _transposed(given, stride, padding, output_padding, groups, dilation)


@dataclass(frozen=True, slots=True)
class Residues:
    """One spatial dim: extents of input, kernel and result, and the options."""

    extent: Expression
    kernel: Expression
    stride: int
    dilation: int
    padding: int
    count: Expression  # of the result

    @property
    def taps(self) -> Expression:
        """The most taps that reach one position."""
        return ceil_div(self.kernel, phases(self.stride, self.dilation))

    @property
    def blocks(self) -> Expression:
        """How many blocks of `stride` positions the result has, the last one perhaps cut off."""
        return ceil_div(self.count, self.stride)

    def reaching(self, block: Expression, residue: Expression, t: Expression) -> Reaching:
        """The t-th tap that reaches position (block, residue) of the result."""
        q = block * self.stride + residue + self.padding
        return reaching(q, t, self.stride, self.dilation)


def _transposed(
    given: Operands,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: int,
    dilation: Ints,
) -> Tensor:
    dims = _residues(given, stride, padding, output_padding, dilation)
    inner, per_group, *_ = given.weight.extents
    given.channels(inner, per_group * groups, groups)
    return given.finished(_spread(given.x, given.weight, dims, groups))


def _convolved(
    g: Tensor, _: Tensor, x: Tensor, weight: Tensor, dims: Sequence[Residues], groups: int
) -> tuple[Tensor, Tensor]:
    """The derivative: windows of g, as of a convolution, times the weight, and times x."""
    rank = len(dims)
    found = []
    for k, each in enumerate(dims):
        pads = const(each.padding), const(each.padding)
        windows = sliding(g.extents[2 + k], each.kernel, each.stride, pads, each.dilation)
        found.append(replace(windows, count=each.extent))  # output_padding may make room for more
    taps = windowed(g, found)
    batch, _inner, *counts = x.extents
    inner, per_group, *kernel = weight.extents
    depth = inner.exact_div(groups)
    assert depth is not None
    ones = (const(1),) * rank
    patches = reshape(taps, batch, groups, 1, per_group, *counts, *kernel)
    kernels = reshape(weight, 1, groups, depth, per_group, *ones, *kernel)
    values = reshape(x, batch, groups, depth, 1, *counts, *ones)
    of_x = sum_products(patches, kernels, 3, *range(4 + rank, 4 + 2 * rank))
    of_weight = sum_products(patches, values, 0, *range(4, 4 + rank))
    return reshape(of_x, *x.extents), reshape(of_weight, *weight.extents)


@differentiated(_convolved)
def _spread(x: Tensor, weight: Tensor, dims: Sequence[Residues], groups: int) -> Tensor:
    """The result without bias (batch, out, *counts)."""
    rank = len(dims)
    batch, channels = x.extents[:2]
    per_group = weight.extents[1]
    depth = channels.exact_div(groups)
    assert depth is not None
    # (batch, groups, out / groups, *blocks, *residues, in / groups, *taps)
    patches = _patches(reshape(x, batch, groups, depth, *x.extents[2:]), dims)
    kernels = _kernels(reshape(weight, groups, depth, *weight.extents[1:]), dims)
    total = sum_products(patches, kernels, *range(3 + 2 * rank, 4 + 3 * rank))
    order = [0, 1, 2, *(n for k in range(rank) for n in (3 + k, 3 + rank + k))]
    wide = [each.blocks * each.stride for each in dims]
    result = reshape(total.permute(order), batch, per_group * groups, *wide)
    for k, each in enumerate(dims, 2):
        result = narrow(result, k, 0, each.count)
    return result


def _patches(x: Tensor, dims: Sequence[Residues]) -> Tensor:
    """x (batch, groups, in, *spatial) by output position and tap; 0 where nothing meets."""
    rank = len(dims)
    shape = (
        *x.extents[:2],
        const(1),
        *(each.blocks for each in dims),
        *(const(each.stride) for each in dims),
        x.extents[2],
        *(each.taps for each in dims),
    )
    i = [along(k, n) for k, n in enumerate(shape)]
    found = [
        each.reaching(i[3 + k], i[3 + rank + k], i[4 + 2 * rank + k]) for k, each in enumerate(dims)
    ]
    # 0 also where the kernel has no tap: 0 * inf would be NaN
    inside = [
        c
        for n, f in zip(dims, found, strict=True)
        for c in (f.at >= 0, f.at < n.extent, f.there, f.tap < n.kernel)
    ]
    entries = [i[0], i[1], i[3 + 2 * rank], *(each.at for each in found)]
    return view_of(x, views.made(x.extents, shape, entries, all_of(inside)))


def _kernels(weight: Tensor, dims: Sequence[Residues]) -> Tensor:
    """weight (groups, in, out, *kernel) by residue and tap; 0 where a residue has fewer taps."""
    rank = len(dims)
    shape = (
        weight.extents[0],
        weight.extents[2],
        *(const(1),) * rank,
        *(const(each.stride) for each in dims),
        weight.extents[1],
        *(each.taps for each in dims),
    )
    i = [along(k, n) for k, n in enumerate(shape)]
    found = [
        each.reaching(const(0), i[2 + rank + k], i[3 + 2 * rank + k]) for k, each in enumerate(dims)
    ]
    inside = [c for n, f in zip(dims, found, strict=True) for c in (f.there, f.tap < n.kernel)]
    entries = [i[0], i[2 + 2 * rank], i[1], *(each.tap for each in found)]
    return view_of(weight, views.made(weight.extents, shape, entries, all_of(inside)))


def _residues(
    given: Operands, stride: Ints, padding: Ints, output_padding: Ints, dilation: Ints
) -> list[Residues]:
    """The spatial dims; raises ShapeError for options that PyTorch refuses."""
    what, rank = given.what, given.rank
    steps = per_dim(what, "stride", stride, rank)
    gaps = per_dim(what, "dilation", dilation, rank)
    pads = per_dim(what, "padding", padding, rank, 0)
    extras = per_dim(what, "output_padding", output_padding, rank, 0)
    dims = []
    for k in range(rank):
        if extras[k] >= max(steps[k], gaps[k]):
            raise ShapeError(
                f"{what}: output_padding {extras[k]} must be below stride {steps[k]} or "
                f"dilation {gaps[k]}"
            )
        n, size = given.x.extents[2 + k], given.weight.extents[2 + k]
        count = (n - 1) * steps[k] - 2 * pads[k] + gaps[k] * (size - 1) + extras[k] + 1
        if count.is_const and count.value < 1:
            raise ShapeError(f"{what}: dim {k} of the result has extent {count}; pad less")
        dims.append(Residues(n, size, steps[k], gaps[k], pads[k], count))
    return dims

"""Convolution in one, two and three dims, and its transposed form: sums over windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from luminal.base.dtypes import DType
from luminal.base.errors import ShapeError
from luminal.base.records import dataclass
from luminal.frontend.handle import along, describe, together
from luminal.frontend.matrices.matmul import product_dtype, rounds, sum_products
from luminal.frontend.movement.views import concat, narrow, pad, permute, reshape, view_of
from luminal.frontend.pointwise.binary import promotion
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.windows.unfold import (
    Ints,
    Padding,
    Reaching,
    paddings,
    per_dim,
    phases,
    reaching,
    require_fits,
    sliding,
    windowed,
    with_batch,
)
from luminal.shape import view as views
from luminal.shape.expression import ZERO, Expression, all_of, ceil_div, const, maximum

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


def _conv(
    operands: Operands, stride: Ints, padding: Padding, dilation: Ints, groups: int
) -> Tensor:
    """The windows (batch, groups, out/groups, *counts, in/groups, *kernel) times the kernels."""
    what, rank, x = operands.what, operands.rank, operands.x
    steps = per_dim(what, "stride", stride, rank)
    gaps = per_dim(what, "dilation", dilation, rank)
    out, inner, *kernel = operands.weight.extents
    per_group = operands.channels(inner * groups, out, groups)
    pads = paddings(what, padding, kernel, steps, gaps)
    windows = []
    for k in range(rank):
        require_fits(what, x, 2 + k, gaps[k] * (kernel[k] - 1) + 1, pads[k])
        windows.append(sliding(x.extents[2 + k], kernel[k], steps[k], pads[k], gaps[k]))
    taps = windowed(x, windows)
    batch, _, *counts = taps.extents[: rank + 2]
    # Windows are a view, so nothing like im2col is stored: the sum over channels and taps is a
    # contraction whose one factor overlaps itself.
    patches = reshape(taps, batch, groups, inner, 1, *counts, *kernel)
    order = (0, 1, 3, *range(4, 4 + rank), 2, *range(4 + rank, 4 + 2 * rank))
    ones = (const(1),) * rank
    kernels = reshape(operands.weight, groups, per_group, *ones, inner, *kernel)
    total = sum_products(permute(patches, order), kernels, *range(3 + rank, 4 + 2 * rank))
    return operands.finished(reshape(total, batch, out, *counts))


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
        channels = self.x.extents[1]
        per_group = out.exact_div(groups) if groups > 0 else None
        if wanted != channels or per_group is None or channels.exact_div(groups) is None:
            raise ShapeError(
                f"{self.what}: {describe(self.weight)} in {groups} groups takes {wanted} "
                f"channels and gives {out}; {describe(self.x)} has {channels}; channels are dim "
                "1, or the first without batch: permute them there"
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


# --- transposed -----------------------------------------------------------------------------------
#
# Input position i and tap k meet at output position o where `i * stride + k * dilation = q`, with
# `q = o + padding`. The taps that reach q are those with `k * dilation = q (mod stride)`: one in
# `phases = stride / gcd(stride, dilation)`, that is `k = first + t * phases`, and tap t reads
# position `i = (q - k * dilation) / stride`. With o split into (block, residue), `first` depends on
# the residue only: a convolution in steps of one for each residue, whose results interleave.
# Residues that follow each other are one convolution where they have as many taps, and `first` and
# i grow evenly. Where that makes too many convolutions, all residues are one, with as many taps as
# any has.


Chosen: TypeAlias = "tuple[Run, ...]"
"""A run of each of the first dims."""


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
    operands = Operands.of("conv_transpose1d", 1, x, weight, bias)
    return _transposed(operands, stride, padding, output_padding, groups, dilation)


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
    operands = Operands.of("conv_transpose2d", 2, x, weight, bias)
    return _transposed(operands, stride, padding, output_padding, groups, dilation)


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
    operands = Operands.of("conv_transpose3d", 3, x, weight, bias)
    return _transposed(operands, stride, padding, output_padding, groups, dilation)


MOST_RUNS = 16  # convolutions that one transposed convolution becomes


class Run(NamedTuple):
    """Residues that follow each other: with `taps` each, that of residue n being
    `first + n * step + t * phases` at position `block + at + n * move - t * jump`.
    """

    start: int
    number: int
    taps: Expression
    first: int = 0
    step: int = 0
    at: int = 0
    move: int = 0

    def joined(self, other: Run) -> Run | None:
        """This run with the residue that follows, if both make one run."""
        step, move = other.first - self.first, other.at - self.at
        n = self.number
        if self.taps is not other.taps:
            return None
        if n > 1 and (step, move) != (n * self.step, n * self.move):
            return None
        return self._replace(number=n + 1, step=step // n, move=move // n)


# The zeros that a transposed convolution inserts are (s - 1) / s of its products. A position's
# residue says which taps meet it, so none of them is computed, and what is left is a contraction as
# any other.
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
    def most_taps(self) -> Expression:
        """The most taps that reach one position."""
        return ceil_div(self.kernel, self.phases)

    def reaching(self, block: Expression, residue: Expression, t: Expression) -> Reaching:
        """The t-th tap that reaches position (block, residue) of the result."""
        q = block * self.stride + residue + self.padding
        return reaching(q, t, self.stride, self.dilation)

    @property
    def blocks(self) -> Expression:
        """How many blocks of `stride` positions the result has, the last one perhaps cut off."""
        return ceil_div(self.count, self.stride)

    @property
    def phases(self) -> int:
        """How many taps lie between two that reach the same position."""
        return phases(self.stride, self.dilation)

    def runs(self) -> list[Run]:
        """The runs that hold all residues, as long ones as there are."""
        runs: list[Run] = []
        for residue in range(self.stride):
            one = self._run(residue)
            both = runs[-1].joined(one) if runs else None
            runs[-1:] = [both] if both is not None else [*runs[-1:], one]
        return runs

    def _run(self, residue: int) -> Run:
        """The run that one residue makes."""
        q = residue + self.padding
        common = gcd(self.stride, self.dilation)
        if q % common:
            return Run(residue, 1, ZERO)
        inverse = pow(self.dilation // common, -1, self.phases) if self.phases > 1 else 0
        first = q % self.stride // common * inverse % self.phases
        taps = maximum(0, ceil_div(self.kernel - first, self.phases))
        at = (q - first * self.dilation) // self.stride
        return Run(residue, 1, taps, first, 0, at)


def _transposed(
    operands: Operands,
    stride: Ints,
    padding: Ints,
    output_padding: Ints,
    groups: int,
    dilation: Ints,
) -> Tensor:
    dims = _residues(operands, stride, padding, output_padding, dilation)
    inner, per_group, *_ = operands.weight.extents
    operands.channels(inner, per_group * groups, groups)
    return operands.finished(_spread(operands.x, operands.weight, dims, groups))


def _convolved(
    g: Tensor, _: Tensor, x: Tensor, weight: Tensor, dims: Sequence[Residues], groups: int
) -> tuple[Tensor, Tensor]:
    """The derivative: windows of g, as of a convolution, times the weight, and times x."""
    rank = len(dims)
    views = []
    for k, dim in enumerate(dims):
        pads = const(dim.padding), const(dim.padding)
        windows = sliding(g.extents[2 + k], dim.kernel, dim.stride, pads, dim.dilation)
        views.append(replace(windows, count=dim.extent))  # output_padding may make room for more
    taps = windowed(g, views)
    batch, _inner, *counts = x.extents
    inner, per_group, *kernel = weight.extents
    depth = inner.exact_div(groups)
    assert depth is not None
    ones = (const(1),) * rank
    patches = reshape(taps, batch, groups, 1, per_group, *counts, *kernel)
    kernels = reshape(weight, 1, groups, depth, per_group, *ones, *kernel)
    values = reshape(x, batch, groups, depth, 1, *counts, *ones)
    # Both derivatives are contractions of the same windows: with the weight, and with x.
    of_x = sum_products(patches, kernels, 3, *range(4 + rank, 4 + 2 * rank))
    of_weight = sum_products(patches, values, 0, *range(4, 4 + rank))
    return reshape(of_x, *x.extents), reshape(of_weight, *weight.extents)


@differentiated(_convolved)
def _spread(x: Tensor, weight: Tensor, dims: Sequence[Residues], groups: int) -> Tensor:
    """The result without bias (batch, out, *counts)."""
    batch, channels = x.extents[:2]
    per_group = weight.extents[1]
    depth = channels.exact_div(groups)
    assert depth is not None
    x = reshape(x, batch, groups, depth, *x.extents[2:])
    weight = reshape(weight, groups, depth, *weight.extents[1:])
    wide = [dim.blocks * dim.stride for dim in dims]
    # Each run is a contraction of its own to compile; where there are many, one with idle taps is
    # quicker to make.
    runs = [dim.runs() for dim in dims] if all(d.stride <= MOST_RUNS for d in dims) else []
    is_few = bool(runs) and prod(map(len, runs)) <= MOST_RUNS
    total = _joined(x, weight, dims, runs, ()) if is_few else _at_once(x, weight, dims)
    result = reshape(total, batch, per_group * groups, *wide)
    for k, dim in enumerate(dims, 2):
        result = narrow(result, k, 0, dim.count)
    return result


def _at_once(x: Tensor, weight: Tensor, dims: Sequence[Residues]) -> Tensor:
    """The sums of all residues as one: for many of them, with taps that some do not have."""
    rank = len(dims)
    # (batch, groups, out / groups, *blocks, *residues, in / groups, *taps)
    products = _patches(x, dims), _kernels(weight, dims)
    total = sum_products(*products, *range(3 + 2 * rank, 4 + 3 * rank))
    return total.permute([0, 1, 2, *(n for k in range(rank) for n in (3 + k, 3 + rank + k))])


def _joined(
    x: Tensor,
    weight: Tensor,
    dims: Sequence[Residues],
    runs: Sequence[Sequence[Run]],
    chosen: Chosen,
) -> Tensor:
    """The sums of all runs of the dims that are not chosen yet, side by side."""
    if len(chosen) == len(dims):
        return _of_runs(x, weight, dims, chosen)
    axis, parts, end = 4 + 2 * len(chosen), [], 0
    for run in runs[len(chosen)]:
        if run.taps is not ZERO:
            part = _joined(x, weight, dims, runs, (*chosen, run))
            parts.append(_after(part, axis, run.start - end))
            end = run.start + run.number
    joined = concat(parts, axis) if len(parts) > 1 else parts[0]
    return _behind(joined, axis, dims[len(chosen)].stride - end)


def _after(x: Tensor, axis: int, zeros: int) -> Tensor:
    """x with so many zeros before it: residues that no tap reaches."""
    return pad(x, [(zeros if k == axis else 0, 0) for k in range(x.ndim)]) if zeros else x


def _behind(x: Tensor, axis: int, zeros: int) -> Tensor:
    """x with so many zeros behind it."""
    return pad(x, [(0, zeros if k == axis else 0) for k in range(x.ndim)]) if zeros else x


def _of_runs(x: Tensor, weight: Tensor, dims: Sequence[Residues], runs: Chosen) -> Tensor:
    """(batch, groups, out / groups, block, residue of each dim): sums over channels and taps."""
    rank = len(dims)
    each_dim = [n for d, run in zip(dims, runs, strict=True) for n in (d.blocks, const(run.number))]
    batch, groups, depth = x.extents[:3]
    taps = [run.taps for run in runs]
    shape = (batch, groups, weight.extents[2], *each_dim, depth, *taps)
    i = [along(k, n) for k, n in enumerate(shape)]
    channel = i[3 + 2 * rank]
    tap: list[Expression] = []
    at: list[Expression] = []
    for k, (d, run) in enumerate(zip(dims, runs, strict=True)):
        block, n, t = i[3 + 2 * k], i[4 + 2 * k], i[4 + 2 * rank + k]
        # Taps `phases` apart move the position that they read by this much.
        jump = d.phases * d.dilation // d.stride
        tap.append(run.first + n * run.step + t * d.phases)
        at.append(block + run.at + n * run.move - t * jump)
    inside = [c for d, p in zip(dims, at, strict=True) for c in (p >= 0, p < d.extent)]
    patches = view_of(x, views.made(x.extents, shape, [*i[:2], channel, *at], all_of(inside)))
    entries = [i[1], channel, i[2], *tap]
    kernels = view_of(weight, views.made(weight.extents, shape, entries))
    return sum_products(patches, kernels, *range(3 + 2 * rank, 4 + 3 * rank))


def _patches(x: Tensor, dims: Sequence[Residues]) -> Tensor:
    """x (batch, groups, in, *spatial) by output position and tap; 0 where nothing meets."""
    rank = len(dims)
    shape = (
        *x.extents[:2],
        const(1),
        *(dim.blocks for dim in dims),
        *(const(dim.stride) for dim in dims),
        x.extents[2],
        *(dim.most_taps for dim in dims),
    )
    i = [along(k, n) for k, n in enumerate(shape)]
    reads = [
        dim.reaching(i[3 + k], i[3 + rank + k], i[4 + 2 * rank + k]) for k, dim in enumerate(dims)
    ]
    # 0 also where the kernel has no tap: 0 * inf would be NaN
    inside = [
        c
        for n, f in zip(dims, reads, strict=True)
        for c in (f.at >= 0, f.at < n.extent, f.there, f.tap < n.kernel)
    ]
    entries = [i[0], i[1], i[3 + 2 * rank], *(read.at for read in reads)]
    return view_of(x, views.made(x.extents, shape, entries, all_of(inside)))


def _kernels(weight: Tensor, dims: Sequence[Residues]) -> Tensor:
    """weight (groups, in, out, *kernel) by residue and tap; 0 where a residue has fewer taps."""
    rank = len(dims)
    shape = (
        weight.extents[0],
        weight.extents[2],
        *(const(1),) * rank,
        *(const(dim.stride) for dim in dims),
        weight.extents[1],
        *(dim.most_taps for dim in dims),
    )
    i = [along(k, n) for k, n in enumerate(shape)]
    reads = [
        dim.reaching(const(0), i[2 + rank + k], i[3 + 2 * rank + k]) for k, dim in enumerate(dims)
    ]
    inside = [c for n, f in zip(dims, reads, strict=True) for c in (f.there, f.tap < n.kernel)]
    entries = [i[0], i[2 + 2 * rank], i[1], *(read.tap for read in reads)]
    return view_of(weight, views.made(weight.extents, shape, entries, all_of(inside)))


def _residues(
    operands: Operands, stride: Ints, padding: Ints, output_padding: Ints, dilation: Ints
) -> list[Residues]:
    """The spatial dims; raises ShapeError for options that PyTorch refuses."""
    what, rank = operands.what, operands.rank
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
        n, size = operands.x.extents[2 + k], operands.weight.extents[2 + k]
        count = (n - 1) * steps[k] - 2 * pads[k] + gaps[k] * (size - 1) + extras[k] + 1
        if count.is_const and count.value < 1:
            raise ShapeError(f"{what}: dim {k} of the result has extent {count}; pad less")
        dims.append(Residues(n, size, steps[k], gaps[k], pads[k], count))
    return dims

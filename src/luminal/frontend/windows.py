"""Windows over the last dims of a tensor: what convolution, pooling and unfold read.

Window `o` of a dim has `size` taps; tap `w` reads position `at(o, w)` of the source, which is there
if it lies in 0 .. end(o) - 1. All dims together are one View; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from luminal import dtypes
from luminal.errors import ShapeError
from luminal.frontend.binary import where
from luminal.frontend.creation import position
from luminal.frontend.handle import Shape, along, describe
from luminal.frontend.movement import view_of
from luminal.records import dataclass
from luminal.shape import view as views
from luminal.shape.expression import Expression, all_of, ceil_div, const, minimum
from luminal.shape.view import View

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Ints: TypeAlias = int | Sequence[int]
"""One int for all dims, or one for each."""
Padding: TypeAlias = Ints | str
"""Ints, or "same" or "valid"."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows along one dim."""

    count: Expression
    size: Expression
    at: Callable[[Expression, Expression], Expression]
    end: Callable[[Expression], Expression]


def per_dim(what: str, name: str, value: Ints, rank: int, least: int = 1) -> tuple[int, ...]:
    """One int for each of `rank` dims, all at least `least`; raises ShapeError otherwise."""
    given = (value,) * rank if isinstance(value, int | np.integer) else tuple(value)
    if len(given) == 1:
        given *= rank
    if len(given) != rank or not all(isinstance(n, int | np.integer) for n in given):
        raise ShapeError(f"{what}: {name} is {value}; give an int or {rank} ints")
    if any(n < least for n in given):
        raise ShapeError(f"{what}: {name} is {value}; give ints of at least {least}")
    return tuple(int(n) for n in given)


def paddings(
    what: str,
    padding: Padding,
    kernel: Sequence[Expression],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> list[tuple[Expression, Expression]]:
    """(before, after) for each dim. "same" keeps extents, with the odd zero behind."""
    if padding == "valid":
        padding = 0
    if isinstance(padding, str):
        if padding != "same":
            raise ShapeError(f"{what}: padding {padding!r}; give ints, 'same' or 'valid'")
        if any(n != 1 for n in stride):
            raise ShapeError(f"{what}: padding 'same' takes stride 1, not {tuple(stride)}")
        totals = [gap * (size - 1) for gap, size in zip(dilation, kernel, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(const(n), const(n)) for n in per_dim(what, "padding", padding, len(kernel), 0)]


def sliding(
    extent: Expression,
    size: Expression,
    stride: int,
    pads: tuple[Expression, Expression],
    dilation: int,
    *,
    ceil: bool = False,
) -> Windows:
    """Windows at every `stride`; `ceil` adds one that starts inside but ends behind the padding.

    The caller requires that one window fits (see `require_fits`).
    """
    before, after = pads
    free = extent + before + after - (dilation * (size - 1) + 1)
    count = free // stride + 1
    if ceil:
        count = minimum(ceil_div(free, stride) + 1, (extent + before - 1) // stride + 1)
    return Windows(
        count,
        size,
        lambda o, w: o * stride + w * dilation - before,
        lambda _: extent,
    )


def require_fits(
    what: str, x: Tensor, dim: int, span: Expression, pads: tuple[Expression, Expression]
) -> None:
    """Requires that a window over `span` positions fits the padded extent of `dim`."""
    padded = x.extents[dim] + pads[0] + pads[1]
    fits = span <= padded
    if fits.is_const and not fits.value:
        raise ShapeError(
            f"{what}: a window spans {span} positions, dim {dim} of {describe(x)} has {padded} "
            "with its padding; use a smaller kernel or more padding"
        )
    x.graph.require(fits, f"{what}: the window's extent in dim {dim}")


def window_view(shape: Shape, windows: Sequence[Windows]) -> View:
    """The windows over the last dims of a source: its shape is (..., *counts, *sizes)."""
    rank = len(windows)
    first = len(shape) - rank
    out = (*shape[:first], *(each.count for each in windows), *(each.size for each in windows))
    indices = [along(k, n) for k, n in enumerate(shape[:first])]
    inside: list[Expression] = []
    for k, each in enumerate(windows, first):
        o, w = along(k, each.count), along(k + rank, each.size)
        at = each.at(o, w)
        indices.append(at)
        inside += [at >= 0, at < each.end(o)]
    return views.made(shape, out, indices, all_of(inside))


def windowed(x: Tensor, windows: Sequence[Windows], fill: float = 0) -> Tensor:
    """`x` as (..., *counts, *sizes); taps outside of it read `fill`."""
    view = window_view(x.extents, windows)
    taps = view_of(x, view)
    if fill == 0 or view.domain == const(1):
        return taps
    valid = position(x.graph, view.domain, view.shape, dtypes.bool_)
    return where(valid, taps, np.asarray(fill).astype(x.dtype.numpy))


# --- from a result back to the taps ---------------------------------------------------------------


class Reaching(NamedTuple):
    """A tap, the position it reads or writes, and whether there is one."""

    tap: Expression
    at: Expression
    there: Expression


def phases(stride: int, dilation: int) -> int:
    """How many taps lie between two that reach the same position."""
    return stride // gcd(stride, dilation)


def reaching(q: Expression, t: Expression, stride: int, dilation: int) -> Reaching:
    """The t-th tap k with `at * stride + k * dilation = q` for a position `at`.

    Such k are equal modulo `phases`. The caller checks that tap and position are inside.
    """
    common, steps = gcd(stride, dilation), phases(stride, dilation)
    inverse = pow(dilation // common, -1, steps) if steps > 1 else 0
    residue = q % stride
    k = (residue // common * inverse) % steps + t * steps
    return Reaching(k, (q - k * dilation) // stride, (residue % common).eq(0))


def with_batch(what: str, x: Tensor, rank: int) -> tuple[Tensor, bool]:
    """`x` as (batch, channels, *spatial), and whether the batch was added.

    Raises ShapeError unless x has `rank` spatial dims behind channels, or batch and channels.
    """
    if x.ndim == rank + 1:
        return x.unsqueeze(0), True
    if x.ndim != rank + 2:
        raise ShapeError(
            f"{what}: takes (batch, channels, {rank} spatial dims), or without batch; "
            f"got {describe(x)}"
        )
    return x, False

"""Sampling at computed places: grid_sample and the affine grids that it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.handle import Extent, Shape, along, describe, in_float
from luminal.frontend.matrices.matmul import keeps, matmul
from luminal.frontend.movement.indexing import gather_at
from luminal.frontend.movement.views import expand, stack
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.unary import round as rounded
from luminal.frontend.windows.interpolate import cubic_weights
from luminal.shape.expression import Expression, const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

Padding: TypeAlias = Literal["zeros", "border", "reflection"]
Fold: TypeAlias = Callable[["Tensor", Expression], "Tensor"]
"""Brings positions along a dim of some extent inside, as the padding mode says."""
Taps: TypeAlias = "list[tuple[Tensor, Tensor | None]]"
"""Whole positions along one dim, each with its weight."""

_INTEGER_LIMIT = 2.0**30
"""Positions beyond it are outside of any tensor; they are cut there to fit an int32."""


@in_float
def grid_sample(
    x: Tensor,
    grid: Tensor,
    mode: Literal["bilinear", "nearest", "bicubic"] = "bilinear",
    padding_mode: Padding = "zeros",
    align_corners: bool = False,
) -> Tensor:
    """x (batch, c, *spatial) at grid (batch, *places, rank): (batch, c, *places), as PyTorch.

    The grid's last dim counts the spatial dims from the last one, from -1 to 1. Two spatial dims,
    or three (not bicubic). Gather (0 outside) of each neighbour times its weight, added up.
    Raises ShapeError where shapes do not fit.
    """
    rank = x.ndim - 2
    _check_grid(x, grid, mode, padding_mode)
    fold = _fold(padding_mode, align_corners)
    taps = []
    for k, extent in enumerate(x.extents[2:]):
        at = _unnormalized(grid.select(-1, rank - 1 - k), extent, align_corners)
        taps.append(_taps(at, extent, mode, fold))
    shape = (*x.extents[:2], *grid.extents[1:-1])
    return _blended(x, shape, taps, [], None)


def _check_grid(x: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    rank = x.ndim - 2
    fits = rank in (2, 3) and grid.ndim == x.ndim and grid.extents[-1] == const(rank)
    if not fits or grid.extents[0] != x.extents[0]:
        raise ShapeError(
            "grid_sample: takes (batch, c, h, w) and a grid (batch, oh, ow, 2), or one dim more; "
            f"got {describe(x)} and {describe(grid)}"
        )
    if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and rank == 3):
        raise ShapeError(f"grid_sample: mode {mode!r} for {rank} dims; give bilinear or nearest")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ShapeError(
            f"grid_sample: padding_mode {padding_mode!r}; give zeros, border or reflection"
        )


def _unnormalized(place: Tensor, extent: Expression, align_corners: bool) -> Tensor:
    """Positions of -1 .. 1: between the outermost centres, or between the outer edges."""
    n = _number(place, extent)
    return (place + 1) / 2 * (n - 1) if align_corners else ((place + 1) * n - 1) / 2


def _number(beside: Tensor, n: Expression) -> Tensor:
    return beside.graph.constant(n.value if n.is_const else n, beside.dtype)


# --- padding --------------------------------------------------------------------------------------


def _fold(padding_mode: str, align_corners: bool) -> Fold:
    if padding_mode == "zeros":
        return lambda at, extent: at
    if padding_mode == "border":
        return _clipped
    return lambda at, extent: _clipped(_reflected(at, extent, align_corners), extent)


def _clipped(at: Tensor, extent: Expression) -> Tensor:
    return at.clip(0, _number(at, extent - 1))


def _reflected(at: Tensor, extent: Expression, align_corners: bool) -> Tensor:
    """Folded back at the outermost centres, or at the outer edges half a step further."""
    if align_corners and extent == const(1):
        return at * 0
    low = 0.0 if align_corners else -0.5
    # Folding is a triangle wave: an even number of flips keeps the direction, an odd one turns it.
    span = _number(at, extent - 1 if align_corners else extent)
    beyond = (at - low).abs()
    flips = (beyond / span).floor()
    rest = beyond - flips * span
    even = flips - (flips / 2).floor() * 2 == 0
    return where(even, rest, span - rest) + low


# --- neighbours -----------------------------------------------------------------------------------


def _taps(at: Tensor, extent: Expression, mode: str, fold: Fold) -> Taps:
    """The neighbours along one dim."""
    if mode == "nearest":
        return [(rounded(fold(at, extent)), None)]
    if mode == "bicubic":
        # Each neighbour is folded by itself, after the weights, as in PyTorch; linear folds the
        # place.
        low = at.floor()
        weights = cubic_weights(at - low)
        return [(fold(low + k, extent), w) for k, w in zip((-1, 0, 1, 2), weights, strict=True)]
    at = fold(at, extent)
    low = at.floor()
    return [(low, low + 1 - at), (low + 1, at - low)]


def _blended(
    x: Tensor,
    shape: Shape,
    taps: Sequence[Taps],
    places: Sequence[Tensor],
    weight: Tensor | None,
) -> Tensor:
    """The sum over the neighbours of all dims; `places` and `weight` belong to the dims before."""
    if not taps:
        return _picked(x, shape, places, weight)
    total: Tensor | None = None
    for place, factor in taps[0]:
        both = factor if weight is None or factor is None else weight * factor
        part = _blended(x, shape, taps[1:], [*places, place], both)
        total = part if total is None else total + part
    assert total is not None
    return total


def _picked(x: Tensor, shape: Shape, places: Sequence[Tensor], weight: Tensor | None) -> Tensor:
    """x at whole places, 0 outside, times the weight."""
    whole = [
        expand(p.clip(-_INTEGER_LIMIT, _INTEGER_LIMIT).cast(dtypes.int32).unsqueeze(1), shape)
        for p in places
    ]
    values = gather_at(x, shape, [along(0, shape[0]), along(1, shape[1]), *whole])
    return values if weight is None else values * weight.unsqueeze(1)


# --- affine grids ---------------------------------------------------------------------------------


@keeps
@in_float
def affine_grid(theta: Tensor, size: Sequence[Extent], align_corners: bool = False) -> Tensor:
    """The places theta (batch, 2, 3) maps a grid to: (batch, h, w, 2) for size (batch, c, h, w).

    theta (batch, 3, 4) and five sizes likewise. The grid runs from -1 to 1, between the outermost
    centres (`align_corners`) or edges. Raises ShapeError where theta and size do not fit.
    """
    extents = theta.graph.extents(size)
    rank = len(extents) - 2
    wanted = (extents[0], const(rank), const(rank + 1))
    if rank not in (2, 3) or theta.extents != wanted:
        raise ShapeError(
            f"affine_grid: {describe(theta)} for size {tuple(map(str, extents))}; theta takes "
            "(batch, 2, 3) with four sizes, or (batch, 3, 4) with five"
        )
    spatial = extents[2:]
    columns = []
    for k in reversed(range(rank)):
        line = _line(theta, spatial[k], align_corners).unsqueeze([n for n in range(rank) if n != k])
        columns.append(expand(line, spatial))
    columns.append(theta.graph.ones(spatial, theta.dtype))
    base = stack(columns, -1).unsqueeze(0)
    turned = theta.transpose(1, 2)
    for _ in range(rank - 1):
        turned = turned.unsqueeze(1)
    return matmul(base, turned)


def _line(theta: Tensor, extent: Expression, align_corners: bool) -> Tensor:
    """`extent` places from -1 to 1."""
    steps = theta.graph.arange(extent, dtype=theta.dtype)
    if align_corners:
        if extent == const(1):
            return steps * 0
        return steps * 2 / _number(theta, extent - 1) - 1
    return (steps * 2 + 1) / _number(theta, extent) - 1

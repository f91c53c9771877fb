"""Several tensors as one, or in one shape: stacks, grids, blocks, made of concat and expand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from luminal.errors import ShapeError
from luminal.frontend.binary import broadcast, common_shape, promotion
from luminal.frontend.handle import describe, is_tensor, listed, together
from luminal.frontend.movement import concat, expand, pad, reshape, stack
from luminal.shape.expression import const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def _several(what: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in the one graph that records what is done with them."""
    if not tensors:
        raise ShapeError(f"{what}: no tensors; give at least one")
    graph, values = together(*tensors)
    return [graph.wrap(value) for value in values]


def _raised(rank: int, x: Tensor) -> Tensor:
    """`x` with dims of extent 1 up to `rank`, 1 to 3, where NumPy and PyTorch put them."""
    behind = 1 if rank == 3 and x.ndim else 0  # (n,) becomes (1, n, 1)
    missing = rank - x.ndim
    if missing <= 0:
        return x
    one = const(1)
    return reshape(x, (*(one,) * (missing - behind), *x.extents, *(one,) * behind))


def atleast_1d(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
    """A 0-d tensor as (1,), others as they are; a tuple for several."""
    return _each(1, tensors)


def atleast_2d(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
    """With dims of extent 1 in front up to 2 dims; a tuple for several."""
    return _each(2, tensors)


def atleast_3d(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
    """(n,) as (1, n, 1) and (m, n) as (m, n, 1); a tuple for several."""
    return _each(3, tensors)


def _each(rank: int, tensors: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    raised = tuple(_raised(rank, x) for x in listed(tensors))
    return raised[0] if len(tensors) == 1 and is_tensor(tensors[0]) else raised


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """One after the other along the second dim, 1-d tensors along the first."""
    parts = [_raised(1, x) for x in _several("hstack", tensors)]
    return concat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """One below the other along the first dim; 1-d tensors are rows."""
    return concat([_raised(2, x) for x in _several("vstack", tensors)], 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """One behind the other along the third dim."""
    return concat([_raised(3, x) for x in _several("dstack", tensors)], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Side by side along the second dim; 1-d tensors are columns."""
    parts = [reshape(x, -1, 1) if x.ndim < 2 else x for x in _several("column_stack", tensors)]
    return concat(parts, 1)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All in their common shape."""
    parts = _several("broadcast_tensors", tensors)
    shape = common_shape("broadcast_tensors", parts)
    return tuple(broadcast(x, shape) for x in parts)


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids of 1-d (or 0-d) tensors, as PyTorch: "xy" exchanges the first two.

    NumPy's default is "xy". Each is one expand.
    """
    if indexing not in ("xy", "ij"):
        raise ShapeError(f'meshgrid: indexing={indexing!r} is not known; use "xy" or "ij"')
    parts = [_raised(1, x) for x in _several("meshgrid", listed(tensors))]
    for x in parts:
        if x.ndim != 1:
            raise ShapeError(f"meshgrid: {describe(x)} is not 1-d; flatten it first")
    places = list(range(len(parts)))
    if indexing == "xy" and len(parts) > 1:
        places[:2] = 1, 0
    shape = [const(1)] * len(parts)
    for place, x in zip(places, parts, strict=True):
        shape[place] = x.extents[0]
    grids = []
    for place, x in zip(places, parts, strict=True):
        ones = [const(1)] * len(parts)
        ones[place] = x.extents[0]
        grids.append(expand(reshape(x, ones), shape))
    return tuple(grids)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every combination of elements of 1-d tensors, a row each, the last one fastest."""
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape(x, -1) for x in meshgrid(*tensors, indexing="ij")], 1)


def block_diag(*tensors: Tensor) -> Tensor:
    """The matrices along the diagonal, 0 elsewhere; 1-d and 0-d tensors are rows."""
    parts = [_raised(2, x) for x in _several("block_diag", tensors)]
    dtype = promotion(parts)
    width = const(0)
    for x in parts:
        if x.ndim != 2:
            raise ShapeError(f"block_diag: {describe(x)} has more than 2 dims; give matrices")
        width = width + x.extents[1]
    rows, left = [], const(0)
    for x in parts:
        right = width - left - x.extents[1]
        rows.append(pad(x.cast(dtype), [(0, 0), (left, right)]))
        left = left + x.extents[1]
    return concat(rows, 0)

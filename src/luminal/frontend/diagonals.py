"""Diagonals and triangles of matrices: views and Selects on positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal import dtypes
from luminal.errors import ShapeError
from luminal.frontend.binary import where
from luminal.frontend.creation import position
from luminal.frontend.handle import along, axis_of, describe
from luminal.frontend.movement import mapped, ravel
from luminal.shape.expression import Expression, const, maximum, minimum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """`x` at and below a diagonal of its last two dims, 0 above it: a Select on positions."""
    return _triangle("tril", x, diagonal, lower=True)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """`x` at and above a diagonal of its last two dims, 0 below it: a Select on positions."""
    return _triangle("triu", x, diagonal, lower=False)


def _triangle(what: str, x: Tensor, diagonal: int, *, lower: bool) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"{what}: {describe(x)} has no last two dims; unsqueeze it first")
    row, column = (along(k, x.extents[k]) for k in (x.ndim - 2, x.ndim - 1))
    inside = column <= row + diagonal if lower else column >= row + diagonal
    zero = x.graph.zeros((), x.dtype)
    return where(position(x.graph, inside, x.extents, dtypes.bool_), x, zero)


def _planes(what: str, dim1: int, dim2: int, rank: int) -> tuple[int, int]:
    """Two dims that differ, counted from the front."""
    first, second = axis_of(what, dim1, rank), axis_of(what, dim2, rank)
    if first == second:
        raise ShapeError(f"{what}: dim1 {dim1} and dim2 {dim2} are one dimension; name two")
    return first, second


def diagonal_length(x: Tensor, offset: int, first: int, second: int) -> Expression:
    """How many elements the diagonal of two dims has."""
    rows, columns = x.extents[first] - max(-offset, 0), x.extents[second] - max(offset, 0)
    return maximum(minimum(rows, columns), 0)


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """`out[..., k] = x[k, k + offset]` in the dims (dim1, dim2), which go away; one view."""
    first, second = _planes("diagonal", dim1, dim2, x.ndim)
    down, right = max(-offset, 0), max(offset, 0)
    length = diagonal_length(x, offset, first, second)
    kept = [k for k in range(x.ndim) if k not in (first, second)]
    shape = (*(x.extents[k] for k in kept), length)
    entries = [const(0)] * x.ndim
    for place, k in enumerate(kept):
        entries[k] = along(place, x.extents[k])
    step = along(len(kept), length)
    entries[first], entries[second] = step + down, step + right
    return mapped(x, shape, entries)


def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dim on a diagonal of two new dims (dim1, dim2), 0 beside it; one view."""
    rank = x.ndim + 1
    if x.ndim == 0:
        raise ShapeError(f"diag_embed: {describe(x)} has no dims; reshape it to (1,)")
    first, second = _planes("diag_embed", dim1, dim2, rank)
    side = x.extents[-1] + abs(offset)
    before = iter(x.extents[:-1])
    shape = tuple(side if k in (first, second) else next(before) for k in range(rank))
    entries = [along(k, n) for k, n in enumerate(shape) if k not in (first, second)]
    row, column = along(first, side), along(second, side)
    return mapped(x, shape, [*entries, row if offset >= 0 else column], (column - row).eq(offset))


def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix with the 1-d `x` on that diagonal."""
    if x.ndim == 1:
        return diag_embed(x, diagonal)
    if x.ndim == 2:
        return _diagonal(x, diagonal)
    raise ShapeError(f"diag: {describe(x)} has {x.ndim} dims; use diagonal or diag_embed")


_diagonal = diagonal  # diag has a parameter of that name, as PyTorch's


def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    """The matrix with all elements of `x` on a diagonal."""
    return diag_embed(ravel(x), offset)

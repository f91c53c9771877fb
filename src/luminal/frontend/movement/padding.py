"""`pad` with all its modes; diagonals and triangles of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from luminal.base import dtypes
from luminal.base.errors import ShapeError
from luminal.frontend.creation import position
from luminal.frontend.handle import Extent, along, axis_of, describe
from luminal.frontend.movement.views import mapped, narrow, ravel
from luminal.frontend.movement.views import pad as filled
from luminal.frontend.pointwise.binary import where
from luminal.shape.expression import Expression, const, maximum, minimum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


Pair = tuple[Expression, Expression]
Amounts = Sequence[Extent] | Sequence[Sequence[Extent]]

NUMPYS = {"edge": "replicate", "wrap": "circular"}


def pad(x: Tensor, pad: Amounts, mode: str = "constant", value: float | None = None) -> Tensor:
    """More elements around `x`. `pad` holds pairs (before, after) for each dim from the first on,
    or a flat list before, after, before, after ... from the *last* dim on, as PyTorch's F.pad.

    Modes: "constant" (`value`, 0 by default), "replicate" or "edge" (the nearest element),
    "reflect" (mirrored at the edge element), "symmetric" (mirrored with it), "circular" or "wrap"
    (from the other end). Negative amounts crop. Amounts may exceed the extent; the pattern goes on.
    Each is one view, with a Select for values but 0. ShapeError for other modes and pairs.
    """
    pairs = _pairs(x, pad)
    mode = NUMPYS.get(mode, mode)
    # Cropping first keeps what is cut off out of the pattern; other modes mirror at x's own edges.
    if mode in ("constant", "circular"):
        x, pairs = _cropped(x, pairs)
    if mode == "constant":
        return filled(x, pairs, 0 if value is None else value)
    if mode not in _SOURCE:
        raise ShapeError(
            f'pad: mode {mode!r} is not known; use "constant", "replicate", "reflect", '
            '"symmetric" or "circular"'
        )
    entries, shape = [], []
    for k, (n, (before, after)) in enumerate(zip(x.extents, pairs, strict=True)):
        shape.append(n + before + after)
        at = along(k, shape[k])
        moved = before != const(0) or after != const(0)
        if moved:
            x.graph.require(n >= 1, f"pad: mode {mode} of dim {k}, which needs an element")
        entries.append(_SOURCE[mode](at - before, n) if moved else at)
    return mapped(x, tuple(shape), entries)


def _pairs(x: Tensor, pad: Amounts) -> list[Pair]:
    """(before, after) for each dim, as Expressions."""
    numbers: list[Any] = list(pad)
    if all(isinstance(entry, tuple | list) for entry in numbers) and (numbers or x.ndim == 0):
        listed = [tuple(entry) for entry in numbers]
    else:
        if len(numbers) % 2 or len(numbers) > 2 * x.ndim:
            raise ShapeError(
                f"pad: {numbers} is not a (before, after) pair for each of the last dims of "
                f"{describe(x)}"
            )
        listed = [(numbers[k], numbers[k + 1]) for k in range(len(numbers) - 2, -1, -2)]
        listed = [(0, 0)] * (x.ndim - len(listed)) + listed
    if len(listed) != x.ndim or any(len(pair) != 2 for pair in listed):
        raise ShapeError(f"pad: {pad} is not a (before, after) pair for each dim of {describe(x)}")
    return [(x.graph.extent(before), x.graph.extent(after)) for before, after in listed]


def _cropped(x: Tensor, pairs: list[Pair]) -> tuple[Tensor, list[Pair]]:
    """`x` without what literal negative amounts cut off, and the amounts that are left."""
    left = []
    for k, pair in enumerate(pairs):
        cut = [-n if n.is_const and n.value < 0 else const(0) for n in pair]
        if any(n != const(0) for n in cut):
            x = narrow(x, k, cut[0], x.extents[k] - cut[0] - cut[1])
        left.append((pair[0] + cut[0], pair[1] + cut[1]))
    return x, left


# --- which element stands at a position before 0, or past the last one ----------------------------


def _replicated(at: Expression, n: Expression) -> Expression:
    return minimum(maximum(at, 0), n - 1)


def _circular(at: Expression, n: Expression) -> Expression:
    return at % n


def _reflected(at: Expression, n: Expression) -> Expression:
    # 0 1 2 3 2 1 | 0 1 ...: the edges stand once in a period.
    period = maximum(2 * n - 2, 1)
    phase = at % period
    return minimum(phase, period - phase) if n != const(1) else const(0)


def _symmetric(at: Expression, n: Expression) -> Expression:
    # 0 1 2 3 3 2 1 0 | 0 1 ...: the edges stand twice.
    phase = at % (2 * n)
    return minimum(phase, 2 * n - 1 - phase)


_SOURCE = {
    "replicate": _replicated,
    "circular": _circular,
    "reflect": _reflected,
    "symmetric": _symmetric,
}


# --- diagonals ------------------------------------------------------------------------------------


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
    # Positions are compared where they are used: no mask lies in memory.
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

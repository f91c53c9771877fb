"""Norms of vectors and matrices, and what is scaled by them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from luminal.base.errors import ShapeError
from luminal.frontend.handle import axes_of, axis_of, describe, in_float, numpy_names
from luminal.frontend.matrices.decompositions import svdvals
from luminal.frontend.movement.views import movedim
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.reduce.reductions import Dims, amax, amin, count_nonzero, greatest, sum
from luminal.shape.expression import const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

BY_SINGULAR_VALUES = (2, -2, "nuc")
"""Orders of norms of matrices: the greatest singular value, the least, and their sum."""


@numpy_names
def norm(
    x: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """The p-norm of x as one vector over `dim`, as PyTorch: sum(|x| ** p) ** (1 / p).

    "fro" is 2; inf and -inf give the greatest and the least |x|, 0 counts what is not 0; "nuc", of
    the matrices in two dims, is the sum of the singular values.
    """
    if p == "nuc":
        axes = axes_of("norm", dim, x.ndim) if dim is None or isinstance(dim, int) else tuple(dim)
        if len(axes) != 2:
            raise ShapeError(f'norm: p="nuc" of {describe(x)} takes two dims; got {dim}')
        return matrix_norm(x, "nuc", (axes[0], axes[1]), keepdim, dtype)
    if p in ("fro", None):
        p = 2
    if isinstance(p, str) or p is None:
        raise ShapeError(f'norm: p={p!r} is not known; use a number, "fro" or "nuc"')
    return vector_norm(x, p, dim, keepdim, dtype)


# --- of vectors -----------------------------------------------------------------------------------


@numpy_names
def vector_norm(
    x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    """The norm of order `ord` over `dim` (None: of x flattened), as torch.linalg.vector_norm.

    Powers are formed in x's work dtype: in float32 squares beyond 1e38 are infinite.
    """
    return _vector_norm(x if dtype is None else x.cast(dtype), ord, dim, keepdim)


@in_float
def _vector_norm(x: Tensor, ord: float, dim: Dims, keepdim: bool) -> Tensor:
    axes = axes_of("norm", dim, x.ndim)
    # Of one element every norm is |x|, which no power can overflow.
    single = all(x.extents[axis] == const(1) for axis in axes)
    if ord == 2 and not single:
        return _euclidean(x, axes, keepdim)
    size = abs(x)
    if ord == 1 or (single and ord != 0):  # |x| of one element, whose power may overflow
        return sum(size, axes, keepdim)
    if ord == math.inf:
        return amax(size, axes, keepdim)
    if ord == -math.inf:
        return amin(size, axes, keepdim)
    if ord == 0:
        return count_nonzero(x, axes, keepdim).cast(x.dtype)
    return _power_norm(x, ord, axes, keepdim)


def _euclidean_derivative(
    g: Tensor, y: Tensor, x: Tensor, axes: tuple[int, ...], keepdim: bool
) -> Tensor:
    """x / norm; 0 where that is 0."""
    if not keepdim:
        g, y = g.unsqueeze(axes), y.unsqueeze(axes)
    return x * where(y == 0, 0, g / where(y == 0, 1, y))


@differentiated(_euclidean_derivative)
def _euclidean(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    return sum(x * x, axes, keepdim).sqrt()


def _power_norm_derivative(
    g: Tensor, y: Tensor, x: Tensor, ord: float, axes: tuple[int, ...], keepdim: bool
) -> Tensor:
    """sign(x) * (|x| / norm) ** (ord - 1); 0 where one of them is 0."""
    if not keepdim:
        g, y = g.unsqueeze(axes), y.unsqueeze(axes)
    is_flat = (x == 0) | (y == 0)
    share = where(is_flat, 1, abs(x)) / where(y == 0, 1, y)
    return g * x.sign() * share ** (ord - 1)


@differentiated(_power_norm_derivative)
def _power_norm(x: Tensor, ord: float, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    size = abs(x)
    # With a negative order 0 counts as infinitely small: 1 / 0 is inf, and the norm 0.
    powers = size**ord if ord > 0 else size.reciprocal() ** -ord
    total = sum(powers, axes, keepdim)
    if any(x.extents[axis] == const(0) for axis in axes):  # where 1 / ord may round to 0
        return total if ord > 0 else total.reciprocal()
    return total ** (1 / ord)


@numpy_names
@in_float
def normalize(x: Tensor, p: float = 2.0, dim: Dims = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm(x, p, dim), eps)."""
    return x / _vector_norm(x, p, dim, True).maximum(eps)


def dist(x: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """norm(x - other, p) over all elements; both broadcast."""
    return vector_norm(x - other, p)


# --- of matrices ----------------------------------------------------------------------------------


@numpy_names
def matrix_norm(
    x: Tensor,
    ord: float | str = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """The norm of the matrices in the two dims `dim`.

    It is "fro"; or the extreme sum of |x| of a column (1, -1) or row (inf, -inf); or of the
    singular values the greatest (2), the least (-2) or the sum ("nuc").

    The greatest of nothing is 0. Raises ShapeError for other orders.
    """
    rows, columns = (axis_of("matrix_norm", d, x.ndim) for d in dim)
    if rows == columns:
        raise ShapeError(f"matrix_norm: dims {dim} name one dimension twice; name two")
    if ord == "fro":
        return vector_norm(x, 2, (rows, columns), keepdim, dtype)
    if ord not in (1, -1, math.inf, -math.inf, *BY_SINGULAR_VALUES):
        orders = '"fro", "nuc", 1, -1, 2, -2, inf, -inf'
        raise ShapeError(f"matrix_norm: ord={ord!r} is not one of {orders}")
    return _matrix_norm(x if dtype is None else x.cast(dtype), ord, rows, columns, keepdim)


@in_float
def _matrix_norm(x: Tensor, ord: float | str, rows: int, columns: int, keepdim: bool) -> Tensor:
    x = movedim(x, (rows, columns), (-2, -1))
    if ord in BY_SINGULAR_VALUES:
        sizes = svdvals(x)
    else:
        sizes = sum(abs(x), -2 if abs(float(ord)) == 1 else -1)
    return of_sizes(sizes, ord, (rows, columns), keepdim)


def of_sizes(sizes: Tensor, ord: float | str, dims: tuple[int, int], keepdim: bool) -> Tensor:
    """The norm of matrices from their singular values, or from the norms of columns or rows, both
    in the last dim. `dims`: where the matrices were.
    """
    if ord == "nuc":
        norms = sum(sizes, -1)
    elif float(ord) < 0:
        norms = amin(sizes, -1)
    else:
        norms = greatest(sizes, (sizes.ndim - 1,), False).maximum(0)
    return norms.unsqueeze(tuple(sorted(dims))) if keepdim else norms


@numpy_names
def linalg_norm(
    x: Tensor,
    ord: float | str | None = None,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """The norm as torch.linalg.norm has it: with two dims (of a matrix also without `dim`)
    `matrix_norm`, else `vector_norm`; without `ord` the 2-norm of all elements over `dim`.
    """
    if ord is None:
        return vector_norm(x, 2, dim, keepdim, dtype)
    if dim is None:
        if x.ndim not in (1, 2):
            raise ShapeError(f"linalg.norm: ord={ord!r} of {describe(x)}; give dim, one or two")
        axes = tuple(range(x.ndim))
    else:
        axes = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(axes) == 2:
        return matrix_norm(x, ord, (axes[0], axes[1]), keepdim, dtype)
    if isinstance(ord, str):
        raise ShapeError(f"linalg.norm: ord={ord!r} takes two dims; got {dim}")
    return vector_norm(x, ord, axes, keepdim, dtype)


@in_float
def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """x with those slices along `dim` whose p-norm is above `maxnorm` scaled down to it."""
    axis = axis_of("renorm", dim, x.ndim)
    others = tuple(k for k in range(x.ndim) if k != axis)
    size = vector_norm(x, p, others, True)
    # PyTorch's 1e-7, so that its results come out to the digit.
    return x * where(size > maxnorm, maxnorm / (size + 1e-7), 1.0)

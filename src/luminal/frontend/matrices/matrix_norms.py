"""Norms of matrices by singular values too, and the norms that choose between the kinds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from luminal.base.errors import ShapeError
from luminal.frontend.handle import axes_of, axis_of, describe, in_float, numpy_names
from luminal.frontend.matrices.decompositions import svdvals
from luminal.frontend.movement.views import movedim
from luminal.frontend.pointwise.binary import where
from luminal.frontend.reduce import norms
from luminal.frontend.reduce.norms import vector_norm
from luminal.frontend.reduce.reduce import Dims, amin, greatest, sum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

BY_SINGULAR_VALUES = (2, -2, "nuc")  # the greatest, the least, their sum


@numpy_names
def matrix_norm(
    x: Tensor,
    ord: float | str = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """Of matrices in the two dims `dim`: "fro", or the extreme sum of |x| of a column (1, -1) or
    row (inf, -inf), or of the singular values the greatest (2), the least (-2), the sum ("nuc").

    The greatest of nothing is 0. Raises ShapeError for other orders.
    """
    rows, columns = (axis_of("matrix_norm", d, x.ndim) for d in dim)
    if rows == columns:
        raise ShapeError(f"matrix_norm: dims {dim} name one dimension twice; name two")
    if ord == "fro":
        return vector_norm(x, 2, (rows, columns), keepdim, dtype)
    if ord not in (1, -1, math.inf, -math.inf, *BY_SINGULAR_VALUES):
        known = '"fro", "nuc", 1, -1, 2, -2, inf, -inf'
        raise ShapeError(f"matrix_norm: ord={ord!r} is not one of {known}")
    return _matrix_norm(x if dtype is None else x.cast(dtype), ord, rows, columns, keepdim)


@in_float
def _matrix_norm(x: Tensor, ord: float | str, rows: int, columns: int, keepdim: bool) -> Tensor:
    x = movedim(x, (rows, columns), (-2, -1))
    if ord in BY_SINGULAR_VALUES:
        sizes = svdvals(x)
    else:
        sizes = sum(abs(x), -2 if abs(float(ord)) == 1 else -1)
    if ord == "nuc":
        found = sum(sizes, -1)
    elif float(ord) < 0:
        found = amin(sizes, -1)
    else:
        found = greatest(sizes, (sizes.ndim - 1,), False).maximum(0)
    return found.unsqueeze(tuple(sorted((rows, columns)))) if keepdim else found


@numpy_names
def linalg_norm(
    x: Tensor,
    ord: float | str | None = None,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """As torch.linalg.norm: with two dims (of a matrix also without `dim`) `matrix_norm`, else
    `vector_norm`; without `ord` the 2-norm of all elements over `dim`."""
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
    return x * where(size > maxnorm, maxnorm / (size + 1e-7), 1.0)


@numpy_names
def norm(
    x: Tensor,
    p: float | str | None = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """`norms.norm`, and the nuclear one of matrices."""
    if p != "nuc":
        return norms.norm(x, p, dim, keepdim, dtype)
    axes = axes_of("norm", dim, x.ndim) if dim is None or isinstance(dim, int) else tuple(dim)
    if len(axes) != 2:
        raise ShapeError(f'norm: p="nuc" of {describe(x)} takes two dims; got {dim}')
    return matrix_norm(x, "nuc", (axes[0], axes[1]), keepdim, dtype)

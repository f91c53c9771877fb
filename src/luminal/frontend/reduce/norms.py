"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from luminal.base.errors import ShapeError
from luminal.frontend.handle import axes_of, in_float, numpy_names
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.reduce.reduce import Dims, amax, amin, count_nonzero, sum
from luminal.shape.expression import const

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


@numpy_names
def norm(
    x: Tensor, p: float | str | None = "fro", dim: Dims = None, keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:  # fmt: skip
    """The p-norm of x as one vector over `dim`, as PyTorch: sum(|x| ** p) ** (1 / p).

    "fro" is 2; inf and -inf give the greatest and the least |x|, 0 counts what is not 0.
    """
    if p in ("fro", None):
        p = 2
    if isinstance(p, str) or p is None:
        raise ShapeError(f'norm: p={p!r} is not known; use a number or "fro"')
    return vector_norm(x, p, dim, keepdim, dtype)


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
    powers = size**ord if ord > 0 else size.reciprocal() ** -ord
    return sum(powers, axes, keepdim) ** (1 / ord)


@numpy_names
@in_float
def normalize(x: Tensor, p: float = 2.0, dim: Dims = 1, eps: float = 1e-12) -> Tensor:
    """x / max(norm(x, p, dim), eps)."""
    return x / _vector_norm(x, p, dim, True).maximum(eps)


def dist(x: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """norm(x - other, p) over all elements; both broadcast."""
    return vector_norm(x - other, p)

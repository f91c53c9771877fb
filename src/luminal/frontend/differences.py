"""Differences and sums of neighbours along a dim, and statistics of pairs of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal.errors import ShapeError
from luminal.frontend.custom import to_file
from luminal.frontend.handle import axis_of, numpy_names
from luminal.frontend.movement import concat
from luminal.frontend.ordered import cumsum
from luminal.frontend.precision import keeps
from luminal.shape.expression import const, maximum, minimum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


@numpy_names
def diff(
    x: Tensor,
    n: int | str = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """x[1:] - x[:-1] along `dim`, `n` times; `prepend` and `append` are joined to x first.

    `x.diff("name")` is x itself, written to name.bin by every run: see `custom.to_file`.
    """
    if isinstance(n, str):
        return to_file(x, n)
    axis = axis_of("diff", dim, x.ndim)
    if n == 0:
        return x
    x = concat([each for each in (prepend, x, append) if each is not None], axis)
    for _ in range(n):
        low, high = _neighbours(x, axis)
        x = high ^ low if x.dtype.kind == "bool" else high - low
    return x


def _neighbours(x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """x without its last and without its first element along `axis`."""
    extent = x.extents[axis]
    if extent == const(0):
        return x, x
    fewer = maximum(extent - 1, 0)  # a dim may be 0 in a run
    return x.narrow(axis, 0, fewer), x.narrow(axis, minimum(extent, 1), fewer)


@numpy_names
def trapezoid(y: Tensor, x: Tensor | None = None, dx: float = 1.0, dim: int = -1) -> Tensor:
    """The integral of y over x (or steps of dx) by the trapezoidal rule along `dim`."""
    return _areas(y, x, dx, axis_of("trapezoid", dim, y.ndim)).sum(dim)


@numpy_names
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, dx: float = 1.0, dim: int = -1
) -> Tensor:
    """The running sums of `trapezoid`."""
    return cumsum(_areas(y, x, dx, axis_of("cumulative_trapezoid", dim, y.ndim)), dim)


def _areas(y: Tensor, x: Tensor | None, dx: float, axis: int) -> Tensor:
    low, high = _neighbours(y, axis)
    if x is None:
        return (low + high) * (0.5 * dx)
    if x.ndim == 1:
        x = x.reshape(-1, *(1,) * (y.ndim - 1 - axis))
        return (low + high) * 0.5 * diff(x, 1, 0)
    if x.ndim != y.ndim:
        raise ShapeError(f"trapezoid: x has {x.ndim} dims, y has {y.ndim}; give x 1 or as many")
    return (low + high) * 0.5 * diff(x, 1, axis)


@keeps
def cov(
    x: Tensor,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """The covariances of the rows of x (variables, observations), divided by n - correction.

    `fweights` count observations, `aweights` weigh them, as NumPy's cov.
    """
    if x.ndim > 2:
        raise ShapeError(f"cov: x has {x.ndim} dims; it takes (variables, observations)")
    rows = x.reshape(-1, x.extents[-1] if x.ndim else 1)
    rows = rows.cast(rows.dtype if rows.dtype.is_float else "float32")
    weights = rows.graph.ones((rows.extents[1],), rows.dtype)
    for each in (fweights, aweights):
        weights = weights if each is None else weights * each.cast(rows.dtype)
    total = weights.sum()
    scale = total
    if aweights is not None:
        squares = (weights * aweights.cast(rows.dtype)).sum() / total
        scale = total - correction * squares
    else:
        scale = total - correction
    mean = (rows * weights).sum(1, keepdim=True) / total
    centred = rows - mean
    result = (centred * weights) @ centred.mT / scale.maximum(0)
    return result.reshape(()) if rows.extents[0] == const(1) else result


def corrcoef(x: Tensor) -> Tensor:
    """The correlation coefficients of the rows of x, held in -1 .. 1."""
    c = cov(x)
    if c.ndim == 0:
        return c / c
    deviations = c.diagonal().sqrt()
    return (c / deviations.unsqueeze(0) / deviations.unsqueeze(1)).clip(-1, 1)

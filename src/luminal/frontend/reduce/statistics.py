"""Means, variances, medians, quantiles; differences of neighbours and statistics of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import ShapeError
from luminal.frontend.custom import to_file
from luminal.frontend.handle import (
    axes_of,
    axis_of,
    in_float,
    is_tensor,
    numpy_names,
    takes_0d,
    work_dtype,
)
from luminal.frontend.matrices.matmul import keeps
from luminal.frontend.movement.indexing import gather
from luminal.frontend.movement.views import concat
from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.reduce.reductions import (
    Dims,
    Extreme,
    any,
    check_not_empty,
    count,
    cumsum,
    nansum,
    number,
    sum,
)
from luminal.frontend.reduce.sorting import sort
from luminal.memory.data import array_of
from luminal.memory.parameter import Parameter
from luminal.memory.state import State
from luminal.shape.expression import const, maximum, minimum
from luminal.shape.expression import maximum as greater

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


# --- moments --------------------------------------------------------------------------------------


@numpy_names
def mean(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The arithmetic mean over `dim`: sum / n. Integers give float32; NaN of nothing."""
    return _mean(x if dtype is None else x.cast(dtype), axes_of("mean", dim, x.ndim), keepdim)


@in_float
def _mean(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    return sum(x, axes, keepdim) / number(x, count(x, axes))


@numpy_names
def nanmean(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The mean of what is not NaN over `dim`; NaN of nothing."""
    return _nanmean(x if dtype is None else x.cast(dtype), axes_of("mean", dim, x.ndim), keepdim)


@in_float
def _nanmean(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    return nansum(x, axes, keepdim) / sum(x == x, axes, keepdim).cast(x.dtype)


@numpy_names
def var(
    x: Tensor,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: float | None = None,
) -> Tensor:
    """The variance in two passes, in float64: sum((x - mean)**2) / (n - correction).

    The correction is 1 by default, as PyTorch's; 0 (NumPy's) also through `unbiased=False`.
    """
    if isinstance(dim, bool):  # PyTorch's x.var(unbiased)
        return var(x, None, dim, keepdim, correction)
    less = int(unbiased) if correction is None else correction
    return _var(x, axes_of("var", dim, x.ndim), less, keepdim).cast(_float_of(x))


def _float_of(x: Tensor) -> DType:
    """x's dtype; float32 for integers and bools. Raises DTypeError for a float of 8 bits."""
    return x.dtype if x.dtype.compute.is_float else dtypes.float32


def _var(x: Tensor, axes: tuple[int, ...], correction: float, keepdim: bool) -> Tensor:
    """The variance in float64: squares of float32 neither overflow nor vanish there."""
    # The one-pass formula E[x**2] - E[x]**2 cancels; two passes read x twice and keep all digits.
    x = x.cast(dtypes.float64)
    centred = x - _mean(x, axes, True)
    if float(correction).is_integer():
        freedom = number(x, greater(const(0), count(x, axes) - int(correction)))
    else:
        freedom = (number(x, count(x, axes)) - correction).maximum(0)
    return sum(centred * centred, axes, keepdim) / freedom


@numpy_names
def std(
    x: Tensor,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: float | None = None,
) -> Tensor:
    """The square root of `var`, also where that overflows."""
    spread = var(x.cast(dtypes.float64), dim, unbiased, keepdim, correction)
    return root(spread).cast(_float_of(x))


@differentiated(lambda g, y, x: where(y == 0, 0, g / where(y == 0, 1, 2 * y)))
def root(x: Tensor) -> Tensor:
    """sqrt(x), as constant where it is 0: x is 0 all around, as PyTorch has it."""
    return x.sqrt()


class Spread(NamedTuple):
    """What `var_mean` and `std_mean` give."""

    spread: Tensor
    mean: Tensor


@numpy_names
def var_mean(
    x: Tensor,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: float | None = None,
) -> Spread:
    """(var, mean) over `dim`; both share one sum."""
    return _with_mean(var, x, dim, unbiased, keepdim, correction)


@numpy_names
def std_mean(
    x: Tensor,
    dim: Dims = None,
    unbiased: bool = True,
    keepdim: bool = False,
    correction: float | None = None,
) -> Spread:
    """(std, mean) over `dim`; both share one sum."""
    return _with_mean(std, x, dim, unbiased, keepdim, correction)


def _with_mean(spread: Callable[..., Tensor], x: Tensor, dim: Dims, *options: Any) -> Spread:
    over = None if isinstance(dim, bool) else dim
    centre = mean(x.cast(dtypes.float64), over, options[1]).cast(_float_of(x))
    return Spread(spread(x, dim, *options), centre)


# --- order statistics -----------------------------------------------------------------------------


@numpy_names
def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle value, the lower one of two; NaN if there is one. From a Sort.

    With `dim`, `(values, indices)` along it, as PyTorch. ShapeError over an empty dim.
    """
    if dim is None:
        return _median(x.reshape(-1), 0, False, True).values
    return _median(x, dim, keepdim, True)


@numpy_names
def nanmedian(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The median of what is not NaN; see `median`."""
    if dim is None:
        return _median(x.reshape(-1), 0, False, False).values
    return _median(x, dim, keepdim, False)


@takes_0d
def _median(x: Tensor, dim: int, keepdim: bool, nan_wins: bool) -> Extreme:
    axis = axis_of("median", dim, x.ndim)
    check_not_empty("median", x, (axis,))
    values, indices = sort(x, axis)
    # The sort puts NaN last, so the middle of the numbers is found by their count alone.
    numbers = sum(x == x, axis, keepdim=True)  # NaNs stand behind them
    middle = (numbers - 1).maximum(0) >> 1
    if nan_wins:
        middle = where(numbers < x.extents[axis], numbers, middle)
    middles = (gather(part, axis, middle) for part in (values, indices))
    return Extreme(*(part if keepdim else part.squeeze(axis) for part in middles))


@numpy_names
def quantile(
    x: Tensor,
    q: float | Sequence[float] | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
) -> Tensor:
    """The value below which the share `q` of x lies along `dim` (None: of x flattened).

    Position q * (n - 1) of a Sort, between two elements by `interpolation`: "linear", "lower",
    "higher", "nearest", "midpoint". NaN if there is one. A 1-d q gives a leading dim.
    """
    return _quantile(x, q, dim, keepdim, interpolation, nan_wins=True)


@numpy_names
def nanquantile(
    x: Tensor,
    q: float | Sequence[float] | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    interpolation: str = "linear",
) -> Tensor:
    """The quantiles of what is not NaN; see `quantile`."""
    return _quantile(x, q, dim, keepdim, interpolation, nan_wins=False)


def _quantile(
    x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, *, nan_wins: bool
) -> Tensor:
    work = work_dtype(x.dtype)
    shares = _shares(x, q).cast(work)
    wide = x.cast(work)
    if dim is None:
        flat = _quantiles(wide.reshape(-1), shares.reshape(-1), 0, interpolation, nan_wins)
        result = flat.reshape(*shares.extents, *((1,) * x.ndim if keepdim else ()))
    elif x.ndim == 0:
        return _quantile(x, q, None, keepdim, interpolation, nan_wins=nan_wins)
    else:
        axis = axis_of("quantile", dim, x.ndim)
        many = _quantiles(wide, shares.reshape(-1), axis, interpolation, nan_wins)
        front = many.permute(axis, *(k for k in range(x.ndim) if k != axis))
        front = front.unsqueeze(axis + 1) if keepdim else front
        result = front if shares.ndim else front.select(0, 0)
    return result.cast(x.dtype) if x.dtype.is_storage else result


def _shares(x: Tensor, q: Any) -> Tensor:
    """q as a Tensor; ShapeError where numbers are not in 0 .. 1."""
    if is_tensor(q) or isinstance(q, Parameter | State):
        return x.graph.constant(q)
    numbers = array_of(q, dtypes.float64, "quantile: q")
    if not np.all((numbers >= 0) & (numbers <= 1)) or numbers.ndim > 1:
        raise ShapeError(f"quantile: q is {q}; give a number in 0..1, or a list of them")
    return x.graph.constant(numbers)


def _quantiles(x: Tensor, q: Tensor, axis: int, interpolation: str, nan_wins: bool) -> Tensor:
    """x with its dim `axis` replaced by one that goes along q (1-d)."""
    check_not_empty("quantile", x, (axis,))
    ordered = sort(x, axis).values
    number_of = sum(x == x, axis, keepdim=True).cast(x.dtype)
    if nan_wins:
        number_of = x.graph.constant(x.extents[axis], dtypes.int64).cast(x.dtype)
    along = q.reshape(-1, *(1,) * (x.ndim - 1 - axis))
    rank = (along * (number_of - 1)).maximum(0)
    rank = rank.expand(*(q.extents[0] if k == axis else n for k, n in enumerate(x.extents)))
    low, share = rank.floor(), rank - rank.floor()
    if interpolation == "nearest":
        low, share = rank.round(), rank * 0
    elif interpolation in ("lower", "higher"):
        low, share = (rank.floor() if interpolation == "lower" else rank.ceil()), rank * 0
    elif interpolation == "midpoint":
        share = where(share > 0, 0.5, share)
    elif interpolation != "linear":
        methods = "linear, lower, higher, nearest, midpoint"
        raise ShapeError(f"quantile: interpolation {interpolation!r} is not one of {methods}")
    # At a whole rank the next element is not read: it may lie beyond the end, or be infinite (inf *
    # 0 is NaN).
    high = where(share > 0, low + 1, low)
    below, above = (gather(ordered, axis, places.cast(dtypes.int64)) for places in (low, high))
    result = where(share > 0, below.lerp(above, share), below)
    if not nan_wins:
        return result
    return where(any(x != x, axis, keepdim=True), np.nan, result)


# --- differences ----------------------------------------------------------------------------------


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
    x = concat([part for part in (prepend, x, append) if part is not None], axis)
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
    for factor in (fweights, aweights):
        weights = weights if factor is None else weights * factor.cast(rows.dtype)
    total = weights.sum()
    scale = total
    if aweights is not None:
        squares = (weights * aweights.cast(rows.dtype)).sum() / total
        scale = total - correction * squares
    else:
        scale = total - correction
    mean = (rows * weights).sum(1, keepdim=True) / total
    # The weights are on one side only: both would square them.
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

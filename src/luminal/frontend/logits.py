"""softmax and its logarithm: exponentials with the greatest value subtracted first.

The greatest value counts as a constant in derivatives. Reductions over nothing give nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.frontend.binary import where
from luminal.frontend.derivatives import differentiated
from luminal.frontend.handle import axes_of, axis_of, in_float, numpy_names, takes_0d
from luminal.frontend.precision import widens
from luminal.frontend.reduce import Dims, greatest, sum

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def _below_max(x: Tensor, axis: int) -> Tensor:
    """x - max along `axis`."""
    return x - greatest(x, (axis,), keepdim=True).stop_gradient()


@widens
@numpy_names
@takes_0d
def softmax(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`, of x - max; x is first cast to `dtype`."""
    return _softmax(x if dtype is None else x.cast(dtype), axis_of("softmax", dim, x.ndim))


def _softmax_derivative(g: Tensor, y: Tensor, x: Tensor, axis: int) -> Tensor:
    weighted = g * y
    return weighted - y * sum(weighted, axis, keepdim=True)


@in_float
@differentiated(_softmax_derivative)
def _softmax(x: Tensor, axis: int) -> Tensor:
    e = _below_max(x, axis).exp()
    return e / sum(e, axis, keepdim=True)


@widens
@numpy_names
@takes_0d
def log_softmax(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along `dim`, without its underflow: b - log(sum(exp(b))) of b = x - max."""
    return _log_softmax(x if dtype is None else x.cast(dtype), axis_of("log_softmax", dim, x.ndim))


@in_float
@differentiated(lambda g, y, x, axis: g - y.exp() * sum(g, axis, keepdim=True))
def _log_softmax(x: Tensor, axis: int) -> Tensor:
    below = _below_max(x, axis)
    return below - sum(below.exp(), axis, keepdim=True).log()


@numpy_names
def softmin(x: Tensor, dim: int = -1, dtype: Any = None) -> Tensor:
    """softmax(-x)."""
    return softmax(-x, dim, dtype)


@widens
@numpy_names
@in_float
def logsumexp(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over `dim`: log(sum(exp(x - max))) + max; -inf of nothing and of -inf."""
    result = _log_sum(x, axes := axes_of("logsumexp", dim, x.ndim))
    return result if keepdim else result.squeeze(axes)


def _log_sum_derivative(g: Tensor, y: Tensor, x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Equal infinities of one sign count as 0 apart."""
    apart = where((x == y) & (abs(y) == np.inf), 0, x - y)
    return g * apart.exp()


@differentiated(_log_sum_derivative)
def _log_sum(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    top = greatest(x, axes, keepdim=True).stop_gradient()
    total = sum((x - top).exp(), axes, keepdim=True).log() + top
    return where(abs(top) == np.inf, top, total)

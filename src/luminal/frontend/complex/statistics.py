"""Variances of complex numbers: the mean of |z - mean|**2, which is that of both parts added up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from luminal.base import dtypes
from luminal.frontend.reduce import statistics
from luminal.frontend.reduce.statistics import Spread


def var(z: Any, *args: Any, **options: Any) -> Any:
    """The variance, real; arguments as of real numbers."""
    return _wide(z, args, options).cast(z.real.dtype)


def std(z: Any, *args: Any, **options: Any) -> Any:
    """The square root of the variance, real."""
    return statistics.root(_wide(z, args, options)).cast(z.real.dtype)


def _wide(z: Any, args: Any, options: Any) -> Any:
    """The variance in float64, where it does not overflow."""
    real, imag = (statistics.var(x.cast(dtypes.float64), *args, **options) for x in z.parts)
    return real + imag


def var_mean(z: Any, dim: Any = None, *args: Any, keepdim: bool = False, **options: Any) -> Spread:
    """The variance and the mean, which is complex."""
    spread = var(z, dim, *args, keepdim=keepdim, **options)
    return Spread(spread, z.mean(None if isinstance(dim, bool) else dim, keepdim))


def std_mean(z: Any, dim: Any = None, *args: Any, keepdim: bool = False, **options: Any) -> Spread:
    """The square root of the variance, and the mean, which is complex."""
    spread = std(z, dim, *args, keepdim=keepdim, **options)
    return Spread(spread, z.mean(None if isinstance(dim, bool) else dim, keepdim))


OF_COMPLEX: dict[Callable[..., Any], Callable[..., Any]] = {
    statistics.std: std,
    statistics.std_mean: std_mean,
    statistics.var: var,
    statistics.var_mean: var_mean,
}
"""By the function of real numbers."""

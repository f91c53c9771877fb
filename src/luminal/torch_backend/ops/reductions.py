"""Operators over dims: sums, extremes, orders, running values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import luminal as lm
from luminal.torch_backend.ops.registry import row, rows

Tensor = lm.Tensor
Dims = Sequence[int] | int | None

_SAME = """
    aminmax argmax argmin argsort cummax cummin kthvalue logcumsumexp median mode
    nanmedian topk
""".split()

rows({name: getattr(lm, name) for name in _SAME})
rows({"max.dim": lm.max, "min.dim": lm.min, "max": lm.max, "min": lm.min})
rows({"sort.default": lm.sort})


@row("sort.stable")
def sort_stable(x: Tensor, *, stable: bool, dim: int = -1, descending: bool = False) -> Any:
    return lm.sort(x, dim, descending)


def _over(dim: Dims) -> Dims:
    """No dims stand for all."""
    return None if dim is None or (isinstance(dim, Sequence) and not dim) else dim


def _reduction(name: str) -> Any:
    function = getattr(lm, name)

    def reduced(x: Tensor, dim: Dims = None, keepdim: bool = False, **how: Any) -> Tensor:
        return function(x, _over(dim), keepdim, **how)

    return reduced


def _total(name: str) -> Any:
    """A sum or product: of integers int64, of unsigned ones too."""
    function = _reduction(name)

    def total(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        return function(x, dim, keepdim, dtype=_total_dtype(x, dtype))

    return total


def _total_dtype(x: Tensor, dtype: Any) -> Any:
    # PyTorch counts in int64 whatever the integers are; NumPy, which the library follows elsewhere,
    # keeps unsigned sums unsigned.
    return lm.int64 if dtype is None and not x.dtype.is_float else dtype


def _truth(name: str) -> Any:
    """A reduction to truth values, which are uint8 for uint8: PyTorch's bool once."""
    function = _reduction(name)

    def truth(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
        reduced = function(x, dim, keepdim)
        return reduced.cast(lm.uint8) if x.dtype is lm.uint8 else reduced

    return truth


rows({name: _reduction(name) for name in ("amax", "amin", "mean")})
rows({name: _total(name) for name in ("sum", "nansum", "prod")})
rows({name: _truth(name) for name in ("any", "all")})


@row("count_nonzero")
def count_nonzero(x: Tensor, dim: Dims = None) -> Tensor:
    return lm.count_nonzero(x, _over(dim))


@row("logsumexp")
def logsumexp(x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    return lm.logsumexp(x, _over(dim), keepdim)


@row("cumsum")
def cumsum(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return lm.cumsum(x, dim, dtype=_total_dtype(x, dtype))


@row("cumprod")
def cumprod(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    return lm.cumprod(x, dim, dtype=_total_dtype(x, dtype))


def _spread(name: str) -> Any:
    function = getattr(lm, name)

    def spread(x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
        return function(x, _over(dim), correction=1 if correction is None else correction,
                        keepdim=keepdim)  # fmt: skip

    return spread


rows({f"{name}.correction": _spread(name) for name in ("var", "std", "var_mean", "std_mean")})


@row("prims::var")
def variance(
    x: Tensor, dims: Dims, correction: float | None = 1, *, output_dtype: Any = None
) -> Tensor:
    variances = lm.var(x, dims, correction=1 if correction is None else correction)
    return variances if output_dtype is None else variances.cast(output_dtype)


@row("_softmax")
def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return lm.softmax(x, dim, dtype=lm.float32 if half_to_float else None)


@row("_log_softmax")
def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return lm.log_softmax(x, dim, dtype=lm.float32 if half_to_float else None)


@row("trace")
def trace(x: Tensor) -> Tensor:
    return lm.trace(x).cast(x.dtype if x.dtype.is_float else lm.int64)


@row("linalg_vector_norm")
def vector_norm(
    x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    return lm.linalg.vector_norm(x, ord, _over(dim), keepdim, dtype=dtype)

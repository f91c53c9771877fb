"""`torch.masked`: reductions over the elements where a mask is true, written with Select."""

from __future__ import annotations

import math
from typing import Any

import luminal as lm

Tensor = lm.Tensor


def _filled(x: Tensor, mask: Any, value: float) -> Tensor:
    return x if mask is None else lm.where(mask, x, value)


def _counts(x: Tensor, mask: Any) -> Tensor:
    """1 where an element counts, 0 elsewhere."""
    ones = lm.ones(x.shape, x.dtype)
    return ones if mask is None else lm.where(mask, ones, 0.0)


def _reduction(op: str, empty: float) -> Any:
    def reduce(
        x: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
    ) -> Tensor:
        found: Tensor = getattr(_filled(x, mask, empty), op)(dim, keepdim=keepdim)
        return found.cast(x.dtype if dtype is None else dtype)  # argmax too gives x's dtype

    return reduce


sum, amax, amin = _reduction("sum", 0), _reduction("amax", -math.inf), _reduction("amin", math.inf)
argmax, argmin = _reduction("argmax", -math.inf), _reduction("argmin", math.inf)
logsumexp = _reduction("logsumexp", -math.inf)


def prod(
    x: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    filled = _filled(x, mask, 1)
    return filled.prod(tuple(range(x.ndim)) if dim is None else dim, keepdim=keepdim)


def mean(
    x: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    count = _counts(x, mask).sum(dim, keepdim=keepdim)
    return _filled(x, mask, 0).sum(dim, keepdim=keepdim) / count


def norm(
    x: Tensor, ord: Any = 2, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
    mask: Any = None,
) -> Tensor:  # fmt: skip
    empty = math.inf if ord == -math.inf else 0.0
    if isinstance(ord, int | float) and ord < 0:
        empty = math.inf
    return _filled(x, mask, empty).norm(ord, dim, keepdim=keepdim)


def var(
    x: Tensor, dim: Any = None, unbiased: Any = None, *, correction: Any = None,
    keepdim: bool = False, dtype: Any = None, mask: Any = None,
) -> Tensor:  # fmt: skip
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    count = _counts(x, mask).sum(dim, keepdim=True)
    centre = _filled(x, mask, 0).sum(dim, keepdim=True) / count
    squares = _filled((x - centre).square(), mask, 0).sum(dim, keepdim=keepdim)
    freedom = _counts(x, mask).sum(dim, keepdim=keepdim) - correction
    return squares / freedom.maximum(0.0)


def std(x: Tensor, *args: Any, **how: Any) -> Tensor:
    return var(x, *args, **how).sqrt()


def cumsum(x: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    return _filled(x, mask, 0).cumsum(dim)


def cumprod(x: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    return _filled(x, mask, 1).cumprod(dim)


def softmax(x: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    return _filled(x, mask, -math.inf).softmax(dim)


def log_softmax(x: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    return _filled(x, mask, -math.inf).log_softmax(dim)


def softmin(x: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    return (-_filled(x, mask, math.inf)).softmax(dim)


def normalize(
    x: Tensor, ord: Any, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None
) -> Tensor:
    length = norm(x, ord, dim, keepdim=True, mask=mask).maximum(eps)
    return _filled(x, mask, 0) / length


def logaddexp(x: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Any = None,
              other_mask: Any = None) -> Tensor:  # fmt: skip
    return _filled(x, input_mask, -math.inf).logaddexp(_filled(other, other_mask, -math.inf))


def median(
    x: Tensor, dim: int, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Any:
    if x.ndim == 0:
        return x
    return _filled(x, mask, math.nan).nanmedian(dim, keepdim=keepdim).values

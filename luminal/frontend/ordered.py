"""Operations with an order along a dim: running sums and products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal import dtypes
from luminal.frontend.handle import axis_of, numpy_names

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def _scanned(x: Tensor, kind: str, dim: int) -> Tensor:
    axis = axis_of(f"cum{kind}", dim, x.ndim)
    work = x.cast(dtypes.accumulator(x.dtype))
    result = x.graph.wrap(x.graph.builder.scan(work.value, kind, axis))
    return result.cast(x.dtype) if x.dtype.is_storage else result


@numpy_names
def cumsum(x: Tensor, dim: int) -> Tensor:
    """The running sum along `dim`; bools and narrow integers give int64 (uint64)."""
    return _scanned(x, "add", dim)


@numpy_names
def cumprod(x: Tensor, dim: int) -> Tensor:
    """The running product along `dim`; bools and narrow integers give int64 (uint64)."""
    return _scanned(x, "mul", dim)

"""Products of vectors and matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luminal import dtypes
from luminal.dtypes import DType
from luminal.errors import ShapeError
from luminal.frontend.binary import promotion
from luminal.frontend.handle import Operand, describe, is_tensor, together
from luminal.frontend.precision import rounds

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

# --- matrix products ------------------------------------------------------------------------------


def product_dtype(dtype: DType) -> DType:
    """What products of `dtype` are formed in: f32 for 16-bit floats, i32 for narrow integers."""
    if dtype.is_float or dtype.size >= 4:
        return dtype.compute
    return dtypes.uint32 if dtype is dtypes.uint16 else dtypes.int32


@rounds("a", "b")
def matmul(a: Operand, b: Operand) -> Tensor:
    """The matrix product of the last two dims; the others broadcast. 1-d operands are vectors.

    Raises ShapeError where inner extents differ. int8 and other narrow integers give int32.
    """
    graph = next(x.graph for x in (a, b) if is_tensor(x))
    x, y = (each if is_tensor(each) else graph.constant(each) for each in (a, b))
    graph, (left, right) = together(x, y)
    x, y = graph.wrap(left), graph.wrap(right)
    _check_matmul(x, y)
    common = promotion((x, y))
    work = product_dtype(common)
    rows = x.cast(work).unsqueeze(-1)  # (..., m, k, 1)
    columns = y.cast(work)
    if y.ndim == 1:
        columns = columns.unsqueeze(-1)  # (k, 1)
    if x.ndim > 1:
        columns = columns.unsqueeze(-3)  # (..., 1, k, n)
    product = sum_products(rows, columns, -2)
    if y.ndim == 1:
        product = product.squeeze(-1)
    return product.cast(common) if common.is_storage else product


def _check_matmul(x: Tensor, y: Tensor) -> None:
    if not (x.ndim and y.ndim):
        scalar = describe(x if x.ndim == 0 else y)
        raise ShapeError(f"matmul: {scalar} has no dims; use * for scalars")
    inner = x.extents[-1], y.extents[max(y.ndim - 2, 0)]
    if inner[0] != inner[1]:
        shapes = " @ ".join(f"({', '.join(map(str, each.extents))})" for each in (x, y))
        raise ShapeError(f"matmul: inner dims differ: {shapes}; {inner[0]} != {inner[1]}")


def sum_products(x: Tensor, y: Tensor, *dims: int) -> Tensor:
    """`sum(x * y)` over dims of their common shape: the form that compiles to a contraction."""
    product = x * y
    graph, value = product.graph, product.value
    for dim in sorted((d % product.ndim for d in dims), reverse=True):
        value = graph.builder.sum(value, dim)
    return graph.wrap(value)

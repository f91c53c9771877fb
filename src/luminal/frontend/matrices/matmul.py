"""Products of vectors and matrices, and the dtypes that they compute in under `autocast`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType, float32, float64
from luminal.base.errors import ShapeError
from luminal.frontend.handle import Operand, describe, is_tensor, together
from luminal.frontend.pointwise.binary import promotion
from luminal.memory.parameter import Parameter
from luminal.memory.state import State

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


P = ParamSpec("P")
R = TypeVar("R")

_dtype: ContextVar[DType | None] = ContextVar("luminal_autocast", default=None)


@contextmanager
def autocast(dtype: DType | None) -> Iterator[None]:
    """Products that are recorded inside the block round their operands to `dtype`; None: not.

    See `luminal.training.AMPContext`.
    """
    token = _dtype.set(dtype)
    try:
        yield
    finally:
        _dtype.reset(token)


def rounding() -> DType | None:
    """The dtype that products recorded now round their operands to, or None."""
    return _dtype.get()


def rounds(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Casts these arguments down; inside, the function computes as outside of `autocast`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters
        assert set(names) <= parameters.keys(), function
        is_operand = [name in names for name in parameters]
        rest = any(parameters[name].kind is inspect.Parameter.VAR_POSITIONAL for name in names)

        @wraps(function)
        def rounding(*args: P.args, **kwargs: P.kwargs) -> R:
            dtype = _dtype.get()
            if dtype is None:
                return function(*args, **kwargs)
            graph = next((x.graph for x in (*args, *kwargs.values()) if is_tensor(x)), None)
            flags = is_operand + [rest] * (len(args) - len(is_operand))
            down: list[Any] = [
                _rounded(x, graph, dtype) if flag else x
                for x, flag in zip(args, flags, strict=False)
            ]
            named: dict[str, Any] = {
                name: _rounded(x, graph, dtype) if name in names else x
                for name, x in kwargs.items()
            }
            with autocast(None):
                return function(*down, **named)

        return rounding

    return decorate


def widens(function: Callable[P, R]) -> Callable[P, R]:
    """Casts 16-bit operands to float32."""

    @wraps(function)
    def widening(*args: P.args, **kwargs: P.kwargs) -> R:
        if _dtype.get() is None:
            return function(*args, **kwargs)
        up: list[Any] = [_wide(x) for x in args]
        named: dict[str, Any] = {name: _wide(x) for name, x in kwargs.items()}
        return function(*up, **named)

    return widening


def keeps(function: Callable[P, R]) -> Callable[P, R]:
    """Computes as outside of `autocast`."""

    @wraps(function)
    def keeping(*args: P.args, **kwargs: P.kwargs) -> R:
        with autocast(None):
            return function(*args, **kwargs)

    return keeping


def _rounded(x: Any, graph: Any, dtype: DType) -> Any:
    if isinstance(x, list | tuple):
        return type(x)(_rounded(part, graph, dtype) for part in x)
    if isinstance(x, Parameter | State | np.ndarray) and graph is not None:
        x = graph.constant(x)
    # Whoever computes in float64 asked for its digits.
    if is_tensor(x) and x.dtype.is_float and x.dtype is not float64:
        return x.cast(dtype)
    return x


def _wide(x: Any) -> Any:
    return x.cast(float32) if is_tensor(x) and x.dtype.is_storage else x


# --- matrix products ------------------------------------------------------------------------------


def product_dtype(dtype: DType) -> DType:
    """What products of `dtype` are formed in: f32 for 16-bit floats, i32 for narrow integers."""
    if dtype.is_float or dtype.size >= 4:
        return dtype.compute
    return dtypes.uint32 if dtype is dtypes.uint16 else dtypes.int32


# Casts of mixed precision stand here, in the functions, not in the layers: a layer of one's own
# needs nothing, and the Parameter stays the float32 master weight.
@rounds("a", "b")
def matmul(a: Operand, b: Operand) -> Tensor:
    """The matrix product of the last two dims; the others broadcast. 1-d operands are vectors.

    Raises ShapeError where inner extents differ. int8 and other narrow integers give int32.
    """
    graph = next(x.graph for x in (a, b) if is_tensor(x))
    x, y = (operand if is_tensor(operand) else graph.constant(operand) for operand in (a, b))
    graph, (left, right) = together(x, y)
    x, y = graph.wrap(left), graph.wrap(right)
    _check_matmul(x, y)
    common = promotion((x, y))
    work = product_dtype(common)
    # Sum(Mul) of broadcast views is the only form of a product: the compiler recognizes
    # contractions by their axes, so matmul, einsum, convolution and attention are one kind of
    # kernel.
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
        shapes = " @ ".join(f"({', '.join(map(str, operand.extents))})" for operand in (x, y))
        raise ShapeError(
            f"matmul: inner dims differ: {shapes}; {inner[0]} != {inner[1]}; transpose one, or "
            "give it another shape"
        )


def sum_products(x: Tensor, y: Tensor, *dims: int) -> Tensor:
    """`sum(x * y)` over dims of their common shape: the form that compiles to a contraction."""
    product = x * y
    graph, value = product.graph, product.value
    for dim in sorted((d % product.ndim for d in dims), reverse=True):
        value = graph.builder.sum(value, dim)
    return graph.wrap(value)

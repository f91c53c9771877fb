"""Mixed precision: inside `autocast(dtype)` products round their operands, sums stay in float32.

A function says by a decorator what it does there. `rounds`: products, convolutions and attention
cast their operands to the 16-bit dtype, which is the result's too. `widens`: softmax, norms and
losses cast 16-bit operands to float32, which is the result's too. `keeps`: what is made of products
but is no layer of a network. All else computes in the dtypes that it gets, and float64 stays.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from luminal.dtypes import DType, float32, float64
from luminal.frontend.handle import is_tensor
from luminal.hlir.state import Parameter, State

P = ParamSpec("P")
R = TypeVar("R")

_dtype: ContextVar[DType | None] = ContextVar("luminal_autocast", default=None)


@contextmanager
def autocast(dtype: DType | None) -> Iterator[None]:
    """What is recorded inside the block rounds the operands of products to `dtype`; None: nothing.

    See `luminal.training.AMPContext`.
    """
    token = _dtype.set(dtype)
    try:
        yield
    finally:
        _dtype.reset(token)


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
        return type(x)(_rounded(each, graph, dtype) for each in x)
    if isinstance(x, Parameter | State | np.ndarray) and graph is not None:
        x = graph.constant(x)
    if is_tensor(x) and x.dtype.is_float and x.dtype is not float64:
        return x.cast(dtype)
    return x


def _wide(x: Any) -> Any:
    return x.cast(float32) if is_tensor(x) and x.dtype.is_storage else x

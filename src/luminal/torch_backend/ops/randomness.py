"""Operators that draw: functions of a key that each run draws anew from PyTorch's generator.

So runs differ, and repeat under `torch.manual_seed`; the numbers are the library's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import luminal as lm
from luminal.frontend.graph import Recorder
from luminal.nn import functional
from luminal.torch_backend.errors import UnsupportedError
from luminal.torch_backend.ops.refusals import refuse_where
from luminal.torch_backend.ops.registry import row

Tensor = lm.Tensor

SEED = "seed"
"""The name of the Input (0-d int64) that holds a run's random number."""


class Keys:
    """Keys for one graph, each of its own number; the Input is there once one was asked for."""

    def __init__(self, graph: Recorder) -> None:
        self._graph = graph
        self._numbers = itertools.count()
        self._key: Tensor | None = None

    def next(self) -> Tensor:
        """A key that no other operator of the graph has."""
        if self._key is None:
            self._key = lm.random.key(self._graph.tensor((), lm.int64, SEED))
        # A number for each operator: with one key for all, two dropouts of the same shape would
        # drop the same places.
        return lm.random.fold_in(self._key, next(self._numbers))


_keys: ContextVar[Keys] = ContextVar("luminal_torch_keys")


@contextmanager
def keys_for(graph: Recorder) -> Iterator[None]:
    """Inside, operators that draw take their keys from this graph."""
    token = _keys.set(Keys(graph))
    try:
        yield
    finally:
        _keys.reset(token)


def _key() -> Tensor:
    return _keys.get().next()


@row("rand")
def rand(size: Sequence[Any], dtype: Any = None, generator: None = None) -> Tensor:
    return lm.random.uniform(_key(), tuple(size), dtype=dtype or lm.float32)


@row("rand_like")
def rand_like(x: Tensor, dtype: Any = None, generator: None = None) -> Tensor:
    return lm.random.uniform(_key(), x.shape, dtype=dtype or x.dtype)


@row("randn")
def randn(size: Sequence[Any], dtype: Any = None, generator: None = None) -> Tensor:
    return lm.random.normal(_key(), tuple(size), dtype=dtype or lm.float32)


@row("randn_like")
def randn_like(x: Tensor, dtype: Any = None, generator: None = None) -> Tensor:
    return lm.random.normal(_key(), x.shape, dtype=dtype or x.dtype)


@row("randint.default")
def randint(high: Any, size: Sequence[Any], dtype: Any = None) -> Tensor:
    return randint_low(0, high, size, dtype)


@row("randint.low")
def randint_low(low: Any, high: Any, size: Sequence[Any], dtype: Any = None) -> Tensor:
    dtype = dtype or lm.int64
    _check_bounds(low, high, dtype)
    return lm.random.randint(_key(), tuple(size), low, high).cast(dtype)


def _check_bounds(low: Any, high: Any, dtype: lm.DType) -> None:
    """Raises UnsupportedError where numbers from low to below high go beyond a dtype's."""
    if isinstance(low, int) and isinstance(high, int):
        least = -dtype.largest if dtype.is_float else int(dtype.lowest)
        if low < least or high - 1 > dtype.largest:
            raise UnsupportedError(f"aten.randint: {low} to {high - 1} are beyond {dtype}")


@row("randint_like.default")
def randint_like(x: Tensor, high: Any, dtype: Any = None) -> Tensor:
    return randint_low(0, high, x.shape, dtype or x.dtype)


@row("randint_like.low_dtype")
def randint_like_low(x: Tensor, low: Any, high: Any, dtype: Any = None) -> Tensor:
    return randint_low(low, high, x.shape, dtype or x.dtype)


@row("randperm")
def randperm(n: Any, dtype: Any = None, generator: None = None) -> Tensor:
    return lm.random.permutation(_key(), n).cast(dtype or lm.int64)


@row("uniform")
def uniform(x: Tensor, low: float = 0, high: float = 1, generator: None = None) -> Tensor:
    if not low <= high:
        raise UnsupportedError(f"aten.uniform: from {low} to {high}")
    return lm.random.uniform(_key(), x.shape, low, high, dtype=x.dtype)


@row("normal.Tensor_Tensor", "normal.float_Tensor")
def normal_of(mean: Any, std: Tensor, generator: None = None) -> Tensor:
    refuse_where(
        lm.logical_not(std >= 0), RuntimeError("normal: an element of std is negative or NaN")
    )
    wide = mean + std
    return mean + std * lm.random.normal(_key(), wide.shape, dtype=wide.dtype)


@row("normal_functional")
def normal(x: Tensor, mean: float = 0, std: float = 1, generator: None = None) -> Tensor:
    return lm.random.normal(_key(), x.shape, mean, std, dtype=x.dtype)


@row("exponential")
def exponential(x: Tensor, rate: float = 1, generator: None = None) -> Tensor:
    return lm.random.exponential(_key(), x.shape, rate, dtype=x.dtype)


@row("geometric")
def geometric(x: Tensor, p: float, generator: None = None) -> Tensor:
    """How many trials it takes to succeed once, where each succeeds with probability p."""
    if not 0 < p < 1:
        raise UnsupportedError(f"aten.geometric: {p} is not between 0 and 1")
    drawn = 1 - lm.random.uniform(_key(), x.shape)
    return (drawn.log() / math.log1p(-p)).ceil().maximum(1).cast(x.dtype)


@row("bernoulli.p")
def bernoulli(x: Tensor, p: float = 0.5, generator: None = None) -> Tensor:
    if not 0 <= p <= 1:
        raise UnsupportedError(f"aten.bernoulli: {p} is no probability")
    return lm.random.bernoulli(_key(), p, x.shape).cast(x.dtype)


@row("bernoulli.default")
def bernoulli_of(x: Tensor, generator: None = None) -> Tensor:
    return lm.random.bernoulli(_key(), _probability(x)).cast(x.dtype)


@row("bernoulli.Tensor")
def bernoulli_like(x: Tensor, p: Tensor, generator: None = None) -> Tensor:
    return lm.random.bernoulli(_key(), _probability(p).expand(*x.extents)).cast(x.dtype)


def _probability(p: Tensor) -> Tensor:
    is_one = (p >= 0) & (p <= 1)
    rule = "bernoulli: a probability is not between 0 and 1"
    refuse_where(lm.logical_not(is_one), RuntimeError(rule))
    return p


@row("rrelu_with_noise_functional")
def rrelu(
    x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False,
    generator: None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if not training:
        return functional.leaky_relu(x, (lower + upper) / 2), noise
    slope = lm.random.uniform(_key(), x.shape, lower, upper, dtype=x.dtype)
    drawn = lm.where(x <= 0, slope, 1)
    return x * drawn, drawn


@row("multinomial")
def multinomial(x: Tensor, count: int, replacement: bool = False, generator: None = None) -> Tensor:
    weighed = (x >= 0) & (x < math.inf)
    rule = "multinomial: a weight is negative, infinite or NaN; weights are finite and at least 0"
    refuse_where(lm.logical_not(weighed), RuntimeError(rule))
    rule = "multinomial: all weights of a row are 0; give one of them a share"
    refuse_where(x.sum(-1) <= 0, RuntimeError(rule))
    return lm.multinomial(x, count, replacement, key=_key())


@row("native_dropout")
def dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False:
        return x, lm.ones(x.shape, lm.bool_)
    if p == 1:
        return lm.zeros(x.shape, x.dtype), lm.zeros(x.shape, lm.bool_)
    kept = lm.random.bernoulli(_key(), 1 - p, x.shape)
    return lm.where(kept, x * (1 / (1 - p)), 0).cast(x.dtype), kept


@row("prims::normal")
def normal_of_shape(
    shape: Sequence[Any], *, mean: float, std: float, dtype: Any, generator: None = None
) -> Tensor:
    return lm.random.normal(_key(), tuple(shape), mean, std, dtype=dtype)

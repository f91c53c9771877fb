"""Random data from the default generator, as PyTorch has it: `lm.randn(2, 3)`.

    lm.manual_seed(0)
    x = lm.randn(2, 3)

Each is an Input of the default graph with numbers drawn at once, as `lm.tensor` of an array: every
run reads the same ones. Numbers that are drawn anew in every run, also of symbolic shapes, are
functions of a key: `lm.random`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from luminal.base import dtypes
from luminal.base.complex_dtypes import ComplexDType, any_dtype_of
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, GraphError, ShapeError
from luminal.base.generator import Array, Rng, draw
from luminal.frontend.foreign import placed
from luminal.frontend.handle import listed
from luminal.frontend.random.keyed import drawn_once
from luminal.frontend.tensor import Tensor
from luminal.memory.row_order import PairsOf
from luminal.session.default_graph import tensor
from luminal.session.eager import default_graph

Shape = tuple[int, ...]


@placed
def rand(*shape: Any, dtype: Any = dtypes.float32) -> Tensor:
    """Floats of 0 <= x < 1: `rand(2, 3)` or `rand((2, 3))`."""
    return _floats("rand", shape, dtype, lambda rng, n, work: rng.random(n, work))


@placed
def randn(*shape: Any, dtype: Any = dtypes.float32) -> Tensor:
    """Floats of the normal distribution: `randn(2, 3)` or `randn((2, 3))`."""
    return _floats("randn", shape, dtype, lambda rng, n, work: rng.standard_normal(n, work))


@placed
def randint(low: int = 0, high: Any = None, size: Any = None, dtype: Any = dtypes.int64) -> Tensor:
    """Integers of low <= x < high: `randint(low, high, size)`, or `randint(high, size)` from 0.

    Raises DTypeError where the interval is empty or does not fit the dtype.
    """
    if size is None:  # randint(high, size)
        low, high, size = 0, low, high
    if size is None or high is None:
        raise ShapeError("randint: takes (high, size) or (low, high, size)")
    start, stop, wanted = low, high, dtypes.dtype_of(dtype)
    shape = _literal("randint", (size,))
    work = wanted if wanted.is_int else dtypes.int64  # floats get whole numbers, as PyTorch's
    limits = np.iinfo(work.numpy)
    if wanted is dtypes.bool_ or not limits.min <= start < stop <= limits.max + 1:
        raise DTypeError(
            f"randint: {start}..{stop} (high excluded) is no interval of {wanted.name}"
        )
    return _drawn(
        "randint", lambda rng: rng.integers(start, stop, shape, work.numpy).astype(wanted.numpy)
    )


@placed
def randperm(n: int, *, dtype: Any = dtypes.int64) -> Tensor:
    """The integers 0..n-1 in random order."""
    (count,), wanted = _literal("randperm", (n,)), dtypes.dtype_of(dtype)
    return _drawn("randperm", lambda rng: rng.permutation(count).astype(wanted.numpy))


@placed
def rand_like(x: Tensor, *, dtype: Any = None) -> Tensor:
    """`rand` in the shape and dtype of x."""
    return rand(x.shape, dtype=x.dtype if dtype is None else dtype)


@placed
def randn_like(x: Tensor, *, dtype: Any = None) -> Tensor:
    """`randn` in the shape and dtype of x."""
    return randn(x.shape, dtype=x.dtype if dtype is None else dtype)


@placed
def randint_like(x: Tensor, low: int, high: int | None = None, *, dtype: Any = None) -> Tensor:
    """`randint` in the shape and dtype of x; `randint_like(x, high)` starts at 0."""
    start, stop = (0, low) if high is None else (low, high)
    return randint(start, stop, x.shape, dtype=x.dtype if dtype is None else dtype)


def _floats(
    what: str, shape: tuple[Any, ...], dtype: Any, function: Callable[[Rng, Shape, Any], Array]
) -> Tensor:
    wanted, size = any_dtype_of(dtype), _literal(what, shape)
    if isinstance(wanted, ComplexDType):
        # As PyTorch's: the parts of randn together have a variance of 1.
        scale = wanted.real.numpy.type(math.sqrt(0.5) if what == "randn" else 1)
        kind = wanted
        return _drawn(what, lambda rng: _complex(rng, size, kind, function) * scale)
    if not wanted.is_float:
        raise DTypeError(f"{what}: {wanted.name} is no float; use randint for integers")
    work: DType = wanted.compute
    return _drawn(what, lambda rng: wanted.rounded(function(rng, size, work.numpy)))


def _complex(
    rng: Rng, size: Shape, kind: ComplexDType, function: Callable[[Rng, Any, Any], Array]
) -> Array:
    """Complex numbers of which both parts are drawn alike."""
    numbers: Array = PairsOf(kind).value(function(rng, (*size, 2), kind.real.numpy))
    return numbers


def _literal(what: str, shape: tuple[Any, ...]) -> Shape:
    """A shape of ints; raises ShapeError."""
    extents = listed(shape)
    for n in extents:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            raise ShapeError(
                f"{what}: {n!r} is no extent; it takes ints of 0 or above (for dims there is "
                "lm.random, whose numbers are drawn in each run)"
            )
    return tuple(map(int, extents))


def _drawn(what: str, function: Callable[[Rng], Array]) -> Tensor:
    graph = default_graph()
    if graph.recorded_once:
        raise GraphError(
            f"{what}: while jit records {graph.name}, numbers that are drawn stay the same in all "
            "its calls; draw them outside and pass them, or pass a key and use lm.random"
        )
    return drawn_once(what, lambda: tensor(draw(function)))

"""`lm.tensor`, `lm.arange` and the like: what records into the default graph, or asks it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luminal.base.dtypes import float32, int64
from luminal.frontend.foreign import placed
from luminal.frontend.handle import Extent
from luminal.frontend.tensor import Tensor
from luminal.memory.state import Assignable
from luminal.session.eager import default_graph
from luminal.shape.expression import MAX_DIM, Expression, Symbol


@placed
def tensor(
    shape_or_data: Any, dtype: Any = None, name: str | None = None, *, copy: bool = True
) -> Tensor:
    """An Input of the default graph: a tuple is a shape, a list, number or array is its value.

    An array is copied, unless told not to.
    """
    return default_graph().tensor(shape_or_data, dtype, name, copy=copy)


def weight(shape: Sequence[int], dtype: Any = float32, name: str = "") -> Tensor:
    """A Weight of the default graph."""
    return default_graph().weight(shape, dtype, name)


def read(state: Assignable) -> Tensor:
    """The value of a State or Parameter at the start of a run of the default graph."""
    return default_graph().read(state)


def assign(state: Assignable | Tensor, value: Tensor) -> None:
    """`state`, which may be a Parameter, holds `value` at the end of a run."""
    value.graph.assign(state, value)


def dim(name: str, lo: int = 1, hi: int = MAX_DIM) -> Symbol:
    """A dim of the default graph, with values lo..hi."""
    return default_graph().dim(name, lo, hi)


def require(condition: Expression | bool) -> None:
    """A condition that every run of the default graph must meet."""
    default_graph().require(condition)


def constant(value: Any, dtype: Any = None) -> Tensor:
    """Exactly this number, list or array, in the default graph."""
    return default_graph().constant(value, dtype)


@placed
def arange(start: Any = 0, stop: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
    """`start, start + step, ...` below `stop`, in the default graph."""
    return default_graph().arange(start, stop, step, dtype)


def iota(shape: Sequence[Extent], dim: int = -1, dtype: Any = int64) -> Tensor:
    """Each element's position along `dim`, in the default graph."""
    return default_graph().iota(shape, dim, dtype)


@placed
def zeros(*shape: Any, dtype: Any = None) -> Tensor:
    """All zeros, in the default graph."""
    return default_graph().zeros(*shape, dtype=dtype)


@placed
def ones(*shape: Any, dtype: Any = None) -> Tensor:
    """All ones, in the default graph."""
    return default_graph().ones(*shape, dtype=dtype)


@placed
def full(shape: Sequence[Extent], value: Any, dtype: Any = None) -> Tensor:
    """All `value`, in the default graph."""
    return default_graph().full(shape, value, dtype)


@placed
def eye(rows: Extent, columns: Extent | None = None, dtype: Any = float32) -> Tensor:
    """Ones on the main diagonal, in the default graph."""
    return default_graph().eye(rows, columns, dtype)


@placed
def empty(*shape: Any, dtype: Any = None) -> Tensor:
    """All zeros, in the default graph: nothing is uninitialised here."""
    return default_graph().empty(*shape, dtype=dtype)


@placed
def linspace(
    start: float, stop: float, num: Extent, dtype: Any = None, endpoint: bool = True
) -> Tensor:
    """`num` numbers at even distances from start to stop, in the default graph."""
    return default_graph().linspace(start, stop, num, dtype, endpoint)


@placed
def logspace(
    start: float, stop: float, num: Extent, base: float = 10.0, dtype: Any = None
) -> Tensor:
    """`base` to the powers that `linspace` gives, in the default graph."""
    return default_graph().logspace(start, stop, num, base, dtype)


def tri(
    rows: Extent, columns: Extent | None = None, diagonal: int = 0, dtype: Any = float32
) -> Tensor:
    """Ones at and below a diagonal, zeros above it, in the default graph."""
    return default_graph().tri(rows, columns, diagonal, dtype)


@placed
def tril_indices(rows: int, columns: int, offset: int = 0, dtype: Any = int64) -> Tensor:
    """The positions (2, count) at and below a diagonal, in the default graph."""
    return default_graph().tril_indices(rows, columns, offset, dtype)


@placed
def triu_indices(rows: int, columns: int, offset: int = 0, dtype: Any = int64) -> Tensor:
    """The positions (2, count) at and above a diagonal, in the default graph."""
    return default_graph().triu_indices(rows, columns, offset, dtype)

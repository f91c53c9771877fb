"""The attributes an HLIR node carries beside its operands, one record per kind of op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from luminal.dtypes import DType
from luminal.shape.expression import Expression
from luminal.shape.view import View

if TYPE_CHECKING:
    from luminal.hlir.ops import Node, Value
    from luminal.hlir.state import Parameter, State

Shape = tuple[Expression, ...]


class InputAttrs(NamedTuple):
    """A tensor given per run; inside a Loop body, an argument of the body."""

    name: str
    shape: Shape
    dtype: DType


class WeightAttrs(NamedTuple):
    """A tensor set rarely; its array lives in the Parameter, outside every graph."""

    name: str
    parameter: Parameter


class StateAttrs(NamedTuple):
    """The value a State holds at the start of the run."""

    state: State


class ConstantAttrs(NamedTuple):
    """An exact literal: row-major little-endian bytes of a tensor with a static shape."""

    shape: tuple[int, ...]
    dtype: DType
    data: bytes

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The literal as a read-only array."""
        return np.frombuffer(self.data, self.dtype.numpy).reshape(self.shape)


class IotaAttrs(NamedTuple):
    """An Expression of the output's indices `i0, i1, ...` and dims, evaluated and cast to dtype."""

    expr: Expression
    shape: Shape
    dtype: DType


class CastAttrs(NamedTuple):
    """The dtype that Cast converts to or Bitcast reinterprets as (of the same width)."""

    dtype: DType


class AxisAttrs(NamedTuple):
    """The dimension that a reduction or a sort runs along."""

    axis: int


class ScanAttrs(NamedTuple):
    """An inclusive scan of `kind` (add, mul or max) along `axis`."""

    kind: str
    axis: int


class GatherAttrs(NamedTuple):
    """`out[i...] = src[map(i...)]`.

    Each entry of `map`, one per source dimension, is an Expression in the output's indices, or an
    int k: the integer tensor `args[1 + k]`, of the output's shape.
    """

    shape: Shape
    map: tuple[Expression | int, ...]


class ScatterAttrs(NamedTuple):
    """`out = dest; out[map(i...)] (=|+=) src[i...]` in row-major order; args: dest, src, maps.

    Each entry of `map`, one per dest dimension, is an Expression in src's indices or an int k: the
    integer tensor `args[2 + k]`, of src's shape. `mode` is "set" or "add".
    """

    map: tuple[Expression | int, ...]
    mode: str


class ViewAttrs(NamedTuple):
    """An index map with a domain; positions outside the domain read 0."""

    view: View


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The program of one Loop iteration: its arguments (Input nodes) and results.

    Arguments: carried values, then streams (one slice each), then invariants. Results: the next
    carried values, then ys.
    """

    arguments: tuple[Node, ...]
    results: tuple[Value, ...]


class LoopAttrs(NamedTuple):
    """`trips` iterations of `body`.

    Operands: `carried` initial values; then, per entry n of `streams`, one tensor with leading axis
    trips (n = 0) or n leaves (n = trips); then invariants. Results: final carried values, then ys,
    each with leading axis trips. `assigned[k]`, if not None, binds y k to a list of States: state i
    takes the y of iteration i.
    """

    trips: Expression
    body: Body
    carried: int
    streams: tuple[int, ...]
    assigned: tuple[tuple[State, ...] | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CustomKernel:
    """A hand-written operation: an opaque value with a shape rule and a NumPy meaning."""

    name: str
    infer: Callable[..., tuple[tuple[Shape, DType], ...]]
    evaluate: Callable[..., tuple[np.ndarray[Any, Any], ...]]


class CustomAttrs(NamedTuple):
    """The kernel of a Custom node."""

    kernel: CustomKernel

"""Tensors made from nothing: constants, ranges, fills. The Recorder's methods of these names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal import dtypes
from luminal.dtypes import DType
from luminal.errors import DTypeError, ShapeError
from luminal.frontend.data import array_of
from luminal.frontend.handle import Extent, Shape, along, axis_of
from luminal.shape.expression import Expression, ceil_div
from luminal.shape.view import expand

if TYPE_CHECKING:
    from luminal.frontend.graph import Recorder
    from luminal.frontend.tensor import Tensor


def constant(graph: Recorder, value: Any, dtype: Any = None) -> Tensor:
    """`value` as a Tensor: a number, a list, an array, or an Expression of dims (int64)."""
    if isinstance(value, Expression):
        return position(graph, value, (), dtypes.dtype_of(dtype or dtypes.int64))
    array = array_of(value, None if dtype is None else dtypes.dtype_of(dtype))
    return graph.wrap(graph.builder.constant(array, dtypes.dtype_of(array)))


def position(graph: Recorder, expr: Expression, shape: Shape, dtype: DType) -> Tensor:
    """An Expression of the dims and of the indices `along(k, shape[k])`, as a Tensor of `shape`."""
    return graph.wrap(graph.builder.iota(graph.extent(expr), shape, dtype))


def full(graph: Recorder, shape: Sequence[Extent], value: Any, dtype: Any = None) -> Tensor:
    """One number, everywhere."""
    if not np.isscalar(value):
        raise DTypeError(f"full: {value!r} is not a number; use constant(...).expand(shape)")
    scalar = constant(graph, value, dtype)
    return graph.wrap(graph.builder.view(scalar.value, expand((), graph.extents(shape))))


def iota(graph: Recorder, shape: Sequence[Extent], dim: int, dtype: Any) -> Tensor:
    """Positions along `dim`."""
    extents = graph.extents(shape)
    axis = axis_of("iota", dim, len(extents))
    return position(graph, along(axis, extents[axis]), extents, dtypes.dtype_of(dtype))


def arange(graph: Recorder, start: Any, stop: Any, step: Any, dtype: Any) -> Tensor:
    """`start + k * step` for each k with a value below `stop` (above it for negative steps)."""
    if stop is None:
        start, stop = 0, start
    if any(isinstance(n, float) for n in (start, stop, step)):
        return _float_range(graph, start, stop, step, dtypes.dtype_of(dtype or dtypes.float32))
    if step == 0:
        raise ShapeError("arange: step is 0; give a step that moves")
    low, high = graph.extent(start), graph.extent(stop)
    count = ceil_div(high - low, step) if step > 0 else ceil_div(low - high, -step)
    if count.is_const and count.value < 0:
        count = graph.extent(0)
    expr = low + along(0, count) * step
    return position(graph, expr, (count,), dtypes.dtype_of(dtype or dtypes.int64))


def _float_range(graph: Recorder, start: Any, stop: Any, step: Any, dtype: DType) -> Tensor:
    """A range of floats: literal, evaluated in float64 and rounded once, as NumPy's."""
    if isinstance(start, Expression) or isinstance(stop, Expression) or step == 0:
        raise ShapeError(f"arange: floats take literals, step not 0; got {start}, {stop}, {step}")
    count = max(0, math.ceil((stop - start) / step))
    return constant(graph, (start + np.arange(count) * step).astype(dtype.numpy))


def eye(graph: Recorder, rows: Extent, columns: Extent | None, dtype: Any) -> Tensor:
    """1 where row equals column."""
    shape = graph.extents((rows, rows if columns is None else columns))
    diagonal = along(0, shape[0]).eq(along(1, shape[1]))
    return position(graph, diagonal, shape, dtypes.dtype_of(dtype))

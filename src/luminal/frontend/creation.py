"""Tensors made from nothing: constants, ranges, fills. The Recorder's methods of these names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from luminal.base import dtypes
from luminal.base.complex_dtypes import ComplexDType, any_dtype_of, complex_dtype_of
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.foreign import placed
from luminal.frontend.handle import Array, Extent, Pair, Shape, along, axis_of, is_tensor, listed
from luminal.memory.data import array_of, complex_array_of
from luminal.shape.expression import Expression, ceil_div, const, maximum
from luminal.shape.view import expand

if TYPE_CHECKING:
    from luminal.frontend.graph import Recorder
    from luminal.frontend.tensor import Tensor


def constant(graph: Recorder, value: Any, dtype: Any = None) -> Tensor:
    """`value` as a Tensor: a number, a list, an array, or an Expression of dims (int64)."""
    if isinstance(value, Expression):
        return position(graph, value, (), dtypes.dtype_of(dtype or dtypes.int64))
    numbers = complex_array_of(value, dtype)
    if numbers is not None:
        return _pair(*(constant(graph, part.copy()) for part in (numbers.real, numbers.imag)))
    array = literal(value, None if dtype is None else dtypes.dtype_of(dtype))
    return graph.wrap(graph.builder.constant(array, dtypes.dtype_of(array)))


def literal(value: Any, dtype: DType | None = None) -> Array:
    """The array of a constant. Raises DTypeError for lists of Tensors, which are no constants."""
    if isinstance(value, list | tuple) and any(map(is_tensor, value)):
        raise DTypeError("constant: a list that holds Tensors; make one Tensor with lm.stack(...)")
    return array_of(value, dtype)


def position(graph: Recorder, expr: Expression, shape: Shape, dtype: DType) -> Tensor:
    """An Expression of the dims and of the indices `along(k, shape[k])`, as a Tensor of `shape`."""
    return graph.wrap(graph.builder.iota(graph.extent(expr), shape, dtype))


def full(graph: Recorder, shape: Sequence[Extent], value: Any, dtype: Any = None) -> Tensor:
    """A tensor of this shape that holds one number everywhere, a complex one too."""
    if not np.isscalar(value):
        raise DTypeError(f"full: {value!r} is not a number; use constant(...).expand(shape)")
    if (kind := _complex_dtype(value, dtype)) is not None:
        number = complex(value)  # type: ignore[arg-type]
        return _pair(*(full(graph, shape, part, kind.real) for part in (number.real, number.imag)))
    scalar = constant(graph, value, dtype)
    return graph.wrap(graph.builder.view(scalar.value, expand((), graph.extents(shape))))


def filled(graph: Recorder, shape: Sequence[Any], value: int, dtype: Any) -> Tensor:
    """`value` in a shape: one argument, which a dtype may follow, or an argument for each dim."""
    if len(shape) == 2 and isinstance(shape[0], list | tuple):
        whole, named = shape
        if dtype is not None:
            raise DTypeError(f"full: two dtypes, {named!r} and {dtype!r}; give one")
        return full(graph, whole, value, named)
    return full(graph, listed(shape), value, dtypes.float32 if dtype is None else dtype)


def iota(graph: Recorder, shape: Sequence[Extent], dim: int, dtype: Any) -> Tensor:
    """The positions along `dim` as the elements of a tensor."""
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
    """A range of floats: `start + k * step` in float64, rounded once, as NumPy's. In integers both
    are cut off before, not what they give; the count stays that of the floats.
    """
    if isinstance(start, Expression) or isinstance(stop, Expression) or step == 0:
        raise ShapeError(f"arange: floats take literals, step not 0; got {start}, {stop}, {step}")
    count = const(max(0, math.ceil((stop - start) / step)))
    if not dtype.is_float and all(map(math.isfinite, (start, step))):
        start, step = math.trunc(start), math.trunc(step)
    steps = position(graph, along(0, count), (count,), dtypes.float64)
    return (steps * float(step) + float(start)).cast(dtype)


def linspace(
    graph: Recorder, start: Any, stop: Any, num: Extent, dtype: Any, endpoint: bool = True
) -> Tensor:
    """`num` numbers at even distances from start to stop, in float64, rounded once.

    `stop` is the last one, exactly, or with endpoint=False the first one left out. Both may be 0-d
    Tensors.
    """
    count = graph.extent(num)
    low, high = (graph.constant(end).cast(dtypes.float64) for end in (start, stop))
    k = position(graph, along(0, count), (count,), dtypes.float64)
    gaps = maximum(count - 1, 1) if endpoint else maximum(count, 1)
    points = k * ((high - low) / graph.constant(gaps, dtypes.float64)) + low
    if endpoint:
        last = position(graph, along(0, count).eq(count - 1) & (count > 1), (count,), dtypes.bool_)
        end = graph.wrap(graph.builder.view(high.value, expand((), (count,))))
        points = graph.wrap(graph.builder.apply("Select", last.value, end.value, points.value))
    return points.cast(dtype or dtypes.float32)


def logspace(
    graph: Recorder, start: Any, stop: Any, num: Extent, base: float, dtype: Any
) -> Tensor:
    """`base` to the powers `linspace(start, stop, num)`, in float64, rounded once."""
    powers = linspace(graph, start, stop, num, dtypes.float64)
    return (powers * math.log2(base)).exp2().cast(dtype or dtypes.float32)


def tri(graph: Recorder, rows: Extent, columns: Extent | None, diagonal: int, dtype: Any) -> Tensor:
    """1 at and below a diagonal, 0 above it."""
    shape = graph.extents((rows, rows if columns is None else columns))
    inside = along(1, shape[1]) <= along(0, shape[0]) + diagonal
    return position(graph, inside, shape, dtypes.dtype_of(dtype))


def tril_indices(graph: Recorder, rows: int, columns: int, offset: int, dtype: Any) -> Tensor:
    """The positions (2, count) at and below a diagonal, row by row: a constant."""
    return _indices(graph, np.tri(rows, columns, offset, dtype=np.bool_), dtype)


def triu_indices(graph: Recorder, rows: int, columns: int, offset: int, dtype: Any) -> Tensor:
    """The positions (2, count) at and above a diagonal, row by row: a constant."""
    return _indices(graph, ~np.tri(rows, columns, offset - 1, dtype=np.bool_), dtype)


def _indices(graph: Recorder, mask: np.ndarray[Any, Any], dtype: Any) -> Tensor:
    return constant(graph, np.stack(np.nonzero(mask)).astype(dtypes.dtype_of(dtype).numpy))


def eye(graph: Recorder, rows: Extent, columns: Extent | None, dtype: Any) -> Tensor:
    """1 where row equals column."""
    shape = graph.extents((rows, rows if columns is None else columns))
    diagonal = along(0, shape[0]).eq(along(1, shape[1]))
    if (kind := complex_dtype_of(dtype)) is not None:
        return _pair(eye(graph, rows, columns, kind.real), full(graph, shape, 0, kind.real))
    return position(graph, diagonal, shape, dtypes.dtype_of(dtype))


def _complex_dtype(value: Any, dtype: Any) -> ComplexDType | None:
    """The complex dtype asked for, or that a complex number asks for; None for others."""
    if dtype is None:
        return complex_dtype_of(value)
    kind = complex_dtype_of(dtype)
    if kind is None and np.iscomplexobj(value):
        raise DTypeError(f"full: {value!r} is complex; a dtype that holds it is lm.complex64")
    return kind


def _pair(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers, which are no Tensor, but are used as one."""
    return cast("Tensor", Pair.kind(real, imag))


# --- as another tensor ----------------------------------------------------------------------------


@placed
def full_like(x: Tensor, value: Any, dtype: Any = None) -> Tensor:
    """One number in the shape and dtype of `x`."""
    wanted = x.dtype if dtype is None else any_dtype_of(dtype)
    if not np.isscalar(value):
        raise DTypeError(f"full_like: {value!r} is not a number; use constant(...).expand(shape)")
    return full(x.graph, x.extents, value, wanted)


@placed
def zeros_like(x: Tensor, dtype: Any = None) -> Tensor:
    """All zeros in the shape and dtype of `x`."""
    return full_like(x, 0, dtype)


@placed
def ones_like(x: Tensor, dtype: Any = None) -> Tensor:
    """All ones in the shape and dtype of `x`."""
    return full_like(x, 1, dtype)


empty_like = zeros_like


def new_full(x: Tensor, shape: Sequence[Extent], value: Any, dtype: Any = None) -> Tensor:
    """One number in `shape`, in the dtype and graph of `x`."""
    wanted = x.dtype if dtype is None else any_dtype_of(dtype)
    return full(x.graph, shape, value, wanted)


def new_zeros(x: Tensor, *shape: Extent | Sequence[Extent], dtype: Any = None) -> Tensor:
    """All zeros in `shape`, in the dtype and graph of `x`."""
    return new_full(x, listed(shape), 0, dtype)


def new_ones(x: Tensor, *shape: Extent | Sequence[Extent], dtype: Any = None) -> Tensor:
    """All ones in `shape`, in the dtype and graph of `x`."""
    return new_full(x, listed(shape), 1, dtype)

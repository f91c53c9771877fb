"""Other dtypes: by value (`to`, `float()` ...) or by bits (`bitcast`, `view(dtype)`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from luminal import dtypes
from luminal.dtypes import DType
from luminal.errors import DTypeError, ShapeError
from luminal.frontend.foreign import type_and_device
from luminal.frontend.handle import describe
from luminal.frontend.movement import reshape, select, stack, unflatten
from luminal.frontend.unary import bitcast, cast

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


def to(
    x: Tensor,
    *targets: Any,
    dtype: Any = None,
    device: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
) -> Tensor:
    """`x` as another dtype, or as that of another Tensor: one Cast.

    A device is for the graph, all of which runs there; the CPU changes nothing, since results come
    to the host from anywhere. `non_blocking` and `copy` are accepted and change nothing. Raises
    InputError for a device that cannot be used, or another one than the graph's.
    """
    found, where = type_and_device(targets, dtype, device)
    if where is not None:
        x.graph.place("to", where)
    return x if found is None else cast(x, found)


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` in the dtype of `other`: one Cast."""
    return cast(x, other.dtype)


def float_(x: Tensor) -> Tensor:
    """As float32."""
    return cast(x, dtypes.float32)


def double(x: Tensor) -> Tensor:
    """As float64."""
    return cast(x, dtypes.float64)


def half(x: Tensor) -> Tensor:
    """As float16."""
    return cast(x, dtypes.float16)


def bfloat16(x: Tensor) -> Tensor:
    """As bfloat16."""
    return cast(x, dtypes.bfloat16)


def bool_(x: Tensor) -> Tensor:
    """As bool: is it not 0?"""
    return cast(x, dtypes.bool_)


def byte(x: Tensor) -> Tensor:
    """As uint8."""
    return cast(x, dtypes.uint8)


def char(x: Tensor) -> Tensor:
    """As int8."""
    return cast(x, dtypes.int8)


def short(x: Tensor) -> Tensor:
    """As int16."""
    return cast(x, dtypes.int16)


def int_(x: Tensor) -> Tensor:
    """As int32."""
    return cast(x, dtypes.int32)


def long(x: Tensor) -> Tensor:
    """As int64."""
    return cast(x, dtypes.int64)


def view(x: Tensor, *shape: Any) -> Tensor:
    """The elements in another shape, as `reshape`; or, of a dtype, the bytes read as that dtype.

    A narrower dtype makes the last dim longer, a wider one shorter, least significant byte first.
    By Bitcast, shifts and Casts of unsigned integers. Raises DTypeError for bools of other width,
    ShapeError if the last dim does not divide; an open one is checked in each run.
    """
    if len(shape) != 1 or not isinstance(shape[0], DType | np.dtype | type):
        return reshape(x, *shape)
    wanted = dtypes.dtype_of(shape[0])
    if wanted.size == x.dtype.size:
        return bitcast(x, wanted)
    if dtypes.bool_ in (x.dtype, wanted) or x.ndim == 0:
        raise DTypeError(f"view: {describe(x)} cannot be read as {wanted.name}; cast it")
    return _narrower(x, wanted) if wanted.size < x.dtype.size else _wider(x, wanted)


def _unsigned(size: int) -> DType:
    return dtypes.dtype_of(f"uint{8 * size}")


def _narrower(x: Tensor, wanted: DType) -> Tensor:
    bits = bitcast(x, _unsigned(x.dtype.size))
    count = x.dtype.size // wanted.size
    parts = [cast(bits >> (8 * wanted.size * k), _unsigned(wanted.size)) for k in range(count)]
    shape = (*x.extents[:-1], x.extents[-1] * count)
    return bitcast(reshape(stack(parts, -1), shape), wanted)


def _wider(x: Tensor, wanted: DType) -> Tensor:
    count = wanted.size // x.dtype.size
    last = x.extents[-1]
    if last.is_const and last.value % count:
        raise ShapeError(
            f"view: the last dim of {describe(x)} does not divide by {count}, "
            f"as many as make one {wanted.name}"
        )
    bits = cast(bitcast(x, _unsigned(x.dtype.size)), _unsigned(wanted.size))
    groups = unflatten(bits, -1, (-1, count))
    made = select(groups, -1, 0)
    for k in range(1, count):
        made = made | (select(groups, -1, k) << (8 * x.dtype.size * k))
    return bitcast(made, wanted)

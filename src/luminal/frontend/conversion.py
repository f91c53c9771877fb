"""Other dtypes, by value or by bits, and questions that a Tensor answers without a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.foreign import type_and_device
from luminal.frontend.handle import Operand, axis_of, describe, in_float
from luminal.frontend.movement.views import reshape, select, stack, unflatten
from luminal.frontend.pointwise.binary import equal as same
from luminal.frontend.pointwise.binary import promotion, where
from luminal.frontend.pointwise.unary import bitcast, cast
from luminal.frontend.reduce.reductions import all
from luminal.shape.expression import Expression, product_of

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
    dtype_asked, where = type_and_device(targets, dtype, device)
    if where is not None:
        x.graph.place("to", where)
    return x if dtype_asked is None else cast(x, dtype_asked)


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` in the dtype of `other`: one Cast."""
    return cast(x, other.dtype)


def float_(x: Tensor) -> Tensor:
    """`x` converted to float32, as `cast` does."""
    return cast(x, dtypes.float32)


def double(x: Tensor) -> Tensor:
    """`x` converted to float64, as `cast` does."""
    return cast(x, dtypes.float64)


def half(x: Tensor) -> Tensor:
    """`x` converted to float16, as `cast` does."""
    return cast(x, dtypes.float16)


def bfloat16(x: Tensor) -> Tensor:
    """`x` converted to bfloat16, as `cast` does."""
    return cast(x, dtypes.bfloat16)


def bool_(x: Tensor) -> Tensor:
    """Bools that are True where x is not 0."""
    return cast(x, dtypes.bool_)


def byte(x: Tensor) -> Tensor:
    """`x` converted to uint8, as `cast` does."""
    return cast(x, dtypes.uint8)


def char(x: Tensor) -> Tensor:
    """`x` converted to int8, as `cast` does."""
    return cast(x, dtypes.int8)


def short(x: Tensor) -> Tensor:
    """`x` converted to int16, as `cast` does."""
    return cast(x, dtypes.int16)


def int_(x: Tensor) -> Tensor:
    """`x` converted to int32, as `cast` does."""
    return cast(x, dtypes.int32)


def long(x: Tensor) -> Tensor:
    """`x` converted to int64, as `cast` does."""
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
    # Least significant byte first, as memory has it on every machine that there is a backend for.
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
    joined = select(groups, -1, 0)
    for k in range(1, count):
        joined = joined | (select(groups, -1, k) << (8 * x.dtype.size * k))
    return bitcast(joined, wanted)


# --- queries --------------------------------------------------------------------------------------


def is_floating_point(x: Tensor) -> bool:
    """Is the dtype one of floats?"""
    return x.dtype.is_float


def is_complex(x: Tensor) -> bool:
    """False: there are no complex dtypes."""
    return False


def is_signed(x: Tensor) -> bool:
    """Does the dtype hold negative numbers?"""
    return x.dtype.is_float or x.dtype.is_signed


def is_same_size(x: Tensor, other: Tensor) -> bool:
    """Are the shapes the same? Extents of dims are, where they are the same Expression."""
    return x.extents == other.extents


def numel(x: Tensor) -> int | Expression:
    """The number of elements: an int where the shape is literal."""
    return x.numel()


def element_size(x: Tensor) -> int:
    """The bytes of an element."""
    return x.dtype.size


def nbytes(x: Tensor) -> int | Expression:
    """The bytes of all elements."""
    return x.numel() * x.dtype.size


def stride(x: Tensor, dim: int | None = None) -> Any:
    """How many elements lie between neighbours along each dim, or along one, in row-major order.

    A lazy Tensor has no storage: these are the strides of the array that a run gives. PyTorch's
    views have those of what they view.
    """
    extents = x.extents
    steps = [product_of(extents[k + 1 :]) for k in range(x.ndim)]
    strides = tuple(n.value if n.is_const else n for n in steps)
    return strides if dim is None else strides[axis_of("stride", dim, x.ndim)]


def equal(x: Tensor, other: Operand) -> Tensor:
    """True (0-d) where the shapes are the same and all elements equal, as torch.equal.

    By element: `eq`. Raises ShapeError where shapes of dims may or may not be the same.
    """
    y = x.graph.constant(other)
    if x.extents != y.extents:
        # Extents that differ only in dims may be equal in a run: neither answer would be right now.
        differ = [
            n.is_const and m.is_const and n != m for n, m in zip(x.extents, y.extents, strict=False)
        ]
        if x.ndim == y.ndim and not any(differ):
            raise ShapeError(
                f"equal: {describe(x)} and {describe(y)} may have the same shape or not, as their "
                "dims are bound; reshape one of them"
            )
        return x.graph.constant(False)
    return all(same(x, y))


def isreal(x: Tensor) -> Tensor:
    """True everywhere: there are no complex dtypes."""
    return x.graph.full(x.extents, True, dtypes.bool_)


@in_float
def angle(x: Tensor) -> Tensor:
    """pi below 0, else 0: the angle of a complex number without an imaginary part; NaN stays."""
    return where(x < 0, math.pi, where(x == x, 0, x))


def real(x: Tensor) -> Tensor:
    """x itself, the real part: there are no complex dtypes."""
    return x


# --- limits ---------------------------------------------------------------------------------------


_KINDS = {"bool": 0, "uint": 1, "int": 1, "float": 2}


def finfo(dtype: DType | Tensor | Any = dtypes.float32) -> Any:
    """The limits of a float dtype: `bits`, `eps`, `max`, `min`, `tiny`, `smallest_normal`.

    Raises DTypeError for another dtype.
    """
    float_type = dtypes.dtype_of(dtype)
    if not float_type.is_float:
        raise DTypeError(f"finfo: {float_type} is no float; lm.iinfo has the limits of integers")
    return ml_dtypes.finfo(float_type.numpy)  # type: ignore[no-untyped-call]


def iinfo(dtype: DType | Tensor | Any) -> np.iinfo[Any]:
    """The limits of an integer dtype: `bits`, `max`, `min`. Raises DTypeError for another one."""
    integer_type = dtypes.dtype_of(dtype)
    if not integer_type.is_int:
        raise DTypeError(f"iinfo: {integer_type} is no integer; lm.finfo has the limits of floats")
    return np.iinfo(integer_type.numpy)


def promote_types(a: DType | Any, b: DType | Any) -> DType:
    """The dtype of what two tensors of these dtypes make."""
    return dtypes.promote(dtypes.dtype_of(a), dtypes.dtype_of(b))


def result_type(*operands: Operand) -> DType:
    """The dtype of what these Tensors and numbers make: numbers count by their kind only."""
    return promotion(operands)


def can_cast(source: DType | Any, result: DType | Any) -> bool:
    """Is the second dtype of the first one's kind, or a higher one: bool, integers, floats?"""
    return _KINDS[dtypes.dtype_of(source).kind] <= _KINDS[dtypes.dtype_of(result).kind]

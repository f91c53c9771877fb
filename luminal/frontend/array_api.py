"""`lm.array_api`: functions of the array API standard (2024.12) in the standard's own sense.

Where it differs from PyTorch, which methods and `lm`'s functions follow, these follow the standard:
`max` and `min` give values only, `var` and `std` divide by n, `equal` is by element, `meshgrid`
exchanges the first two dims, `repeat` repeats elements, running sums may start with what they start
from. Functions of two operands take numbers on either side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from luminal.errors import ShapeError
from luminal.frontend import (
    binary,
    combine,
    exponential,
    hyperbolic,
    joining,
    ordered,
    reduce,
    repeating,
    roots,
    rounding,
    statistics,
    trigonometric,
    unary,
)
from luminal.frontend.handle import axis_of
from luminal.frontend.movement import concat
from luminal.frontend.reduce import Dims

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

# --- by element ---------------------------------------------------------------------------------

abs = unary.abs
acos = trigonometric.acos
acosh = hyperbolic.acosh
add = binary.add
asin = trigonometric.asin
asinh = hyperbolic.asinh
atan = trigonometric.atan
atan2 = trigonometric.atan2
atanh = hyperbolic.atanh
bitwise_and = binary.bit_and
bitwise_invert = unary.invert
bitwise_left_shift = binary.shift_left
bitwise_or = binary.bit_or
bitwise_right_shift = binary.shift_right
bitwise_xor = binary.bit_xor
ceil = rounding.ceil
clip = binary.clip
copysign = combine.copysign
cos = unary.cos
cosh = hyperbolic.cosh
divide = binary.div
equal = binary.equal
exp = unary.exp
expm1 = exponential.expm1
floor = rounding.floor
floor_divide = binary.floor_div
greater = binary.greater
greater_equal = binary.greater_equal
hypot = roots.hypot
isfinite = unary.isfinite
isinf = unary.isinf
isnan = unary.isnan
less = binary.less
less_equal = binary.less_equal
log = unary.log
log10 = exponential.log10
log1p = exponential.log1p
log2 = unary.log2
logaddexp = exponential.logaddexp
logical_and = combine.logical_and
logical_not = unary.logical_not
logical_or = combine.logical_or
logical_xor = combine.logical_xor
multiply = binary.mul
negative = unary.neg
not_equal = binary.not_equal
pow = binary.pow
reciprocal = unary.reciprocal
remainder = rounding.remainder
round = rounding.round
sign = unary.sign
signbit = unary.signbit
sin = unary.sin
sinh = hyperbolic.sinh
sqrt = unary.sqrt
square = unary.square
subtract = binary.sub
tan = trigonometric.tan
tanh = hyperbolic.tanh
trunc = rounding.trunc


def positive(x: Tensor) -> Tensor:
    """x itself."""
    return x


# --- reductions -----------------------------------------------------------------------------------


def sum(x: Tensor, axis: Dims = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis`; bools and narrow integers give int64 (uint64)."""
    return reduce.sum(x, axis, keepdims, dtype)


def prod(x: Tensor, axis: Dims = None, *, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product over `axis`; bools and narrow integers give int64 (uint64)."""
    return reduce.prod(x, axis, keepdims, dtype)


def mean(x: Tensor, axis: Dims = None, *, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over `axis`."""
    return statistics.mean(x, axis, keepdims)


def var(x: Tensor, axis: Dims = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance over `axis`, divided by n - correction: by n, unlike the method."""
    return statistics.var(x, axis, keepdim=keepdims, correction=correction)


def std(x: Tensor, axis: Dims = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The square root of `var`: divided by n, unlike the method."""
    return statistics.std(x, axis, keepdim=keepdims, correction=correction)


def max(x: Tensor, axis: Dims = None, *, keepdims: bool = False) -> Tensor:
    """The greatest value over `axis`, without its index, unlike the method."""
    return reduce.amax(x, axis, keepdims)


def min(x: Tensor, axis: Dims = None, *, keepdims: bool = False) -> Tensor:
    """The least value over `axis`, without its index, unlike the method."""
    return reduce.amin(x, axis, keepdims)


def argmax(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Where the greatest first occurs (int64)."""
    return reduce.argmax(x, axis, keepdims)


def argmin(x: Tensor, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
    """Where the least first occurs (int64)."""
    return reduce.argmin(x, axis, keepdims)


def any(x: Tensor, axis: Dims = None, *, keepdims: bool = False) -> Tensor:
    """True where an element over `axis` is not 0."""
    return reduce.any(x, axis, keepdims)


def all(x: Tensor, axis: Dims = None, *, keepdims: bool = False) -> Tensor:
    """True where no element over `axis` is 0."""
    return reduce.all(x, axis, keepdims)


def count_nonzero(x: Tensor, axis: Dims = None, *, keepdims: bool = False) -> Tensor:
    """How many elements over `axis` are not 0 (int64)."""
    return reduce.count_nonzero(x, axis, keepdims)


# --- running sums ---------------------------------------------------------------------------------


def cumulative_sum(
    x: Tensor, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The running sum along `axis` (None: of a vector), led by a 0 with `include_initial`."""
    along = _only_axis("cumulative_sum", x, axis)
    return _led(ordered.cumsum(x, along, dtype), along, 0 if include_initial else None)


def cumulative_prod(
    x: Tensor, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The running product along `axis` (None: of a vector), led by a 1 with `include_initial`."""
    along = _only_axis("cumulative_prod", x, axis)
    return _led(ordered.cumprod(x, along, dtype), along, 1 if include_initial else None)


def _only_axis(what: str, x: Tensor, axis: int | None) -> int:
    if axis is None and x.ndim != 1:
        raise ShapeError(f"{what}: x has {x.ndim} dims; give axis")
    return axis_of(what, 0 if axis is None else axis, x.ndim)


def _led(x: Tensor, axis: int, first: int | None) -> Tensor:
    """x behind one more element along `axis`."""
    if first is None:
        return x
    lead = x.graph.full((*x.extents[:axis], 1, *x.extents[axis + 1 :]), first, x.dtype)
    return concat((lead, x), axis)


# --- shapes ---------------------------------------------------------------------------------------


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinate grids of 1-d tensors; "xy", the default, exchanges the first two dims."""
    return joining.meshgrid(*arrays, indexing=indexing)


def repeat(x: Tensor, repeats: Any, *, axis: int | None = None) -> Tensor:
    """Each element along `axis` (None: of x flattened) several times in a row."""
    return repeating.repeat_interleave(x, repeats, axis)


# fmt: off
__all__ = [
    "abs", "acos", "acosh", "add", "all", "any", "argmax", "argmin", "asin", "asinh", "atan",
    "atan2", "atanh",
    "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "copysign", "cos", "cosh",
    "count_nonzero", "cumulative_prod", "cumulative_sum", "divide", "equal", "exp", "expm1",
    "floor", "floor_divide", "greater", "greater_equal", "hypot", "isfinite", "isinf", "isnan",
    "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "max", "mean", "meshgrid", "min", "multiply",
    "negative", "not_equal", "positive", "pow", "prod", "reciprocal", "remainder", "repeat",
    "round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "std", "subtract", "sum", "tan",
    "tanh", "trunc", "var",
]
# fmt: on

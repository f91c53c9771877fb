"""Functions by element. Numbers may stand on either side of those of two operands."""

from __future__ import annotations

from typing import Any, NoReturn

from luminal.array_api.array import Array, common_dtype, of_arrays, promoting
from luminal.base.errors import DTypeError
from luminal.frontend import conversion
from luminal.frontend.pointwise import binary, combine, exponential, rounding, trigonometric, unary

# --- of one operand -------------------------------------------------------------------------------

abs = of_arrays(unary.abs)
acos = of_arrays(trigonometric.acos)
acosh = of_arrays(trigonometric.acosh)
asin = of_arrays(trigonometric.asin)
asinh = of_arrays(trigonometric.asinh)
atan = of_arrays(trigonometric.atan)
atanh = of_arrays(trigonometric.atanh)
bitwise_invert = of_arrays(unary.invert)
ceil = of_arrays(rounding.ceil)
conj = of_arrays(conversion.conj)
cos = of_arrays(unary.cos)
cosh = of_arrays(trigonometric.cosh)
exp = of_arrays(unary.exp)
expm1 = of_arrays(exponential.expm1)
floor = of_arrays(rounding.floor)
isfinite = of_arrays(unary.isfinite)
isinf = of_arrays(unary.isinf)
isnan = of_arrays(unary.isnan)
log = of_arrays(unary.log)
log10 = of_arrays(exponential.log10)
log1p = of_arrays(exponential.log1p)
log2 = of_arrays(unary.log2)
logical_not = of_arrays(unary.logical_not)
negative = of_arrays(unary.neg)
positive = real = of_arrays(conversion.real)
reciprocal = of_arrays(unary.reciprocal)
round = of_arrays(rounding.round)
sign = of_arrays(unary.sign)
signbit = of_arrays(unary.signbit)
sin = of_arrays(unary.sin)
sinh = of_arrays(trigonometric.sinh)
sqrt = of_arrays(unary.sqrt)
square = of_arrays(unary.square)
tan = of_arrays(trigonometric.tan)
tanh = of_arrays(trigonometric.tanh)
trunc = of_arrays(rounding.trunc)


def imag(x: Array, /) -> NoReturn:
    """Raises DTypeError: there are no complex dtypes."""
    raise DTypeError(f"imag: {x.dtype.name} has no imaginary part; Luminal has no complex dtypes")


# --- of two ---------------------------------------------------------------------------------------

add = promoting(binary.add)
atan2 = promoting(trigonometric.atan2)
bitwise_and = promoting(binary.bit_and)
bitwise_left_shift = promoting(binary.shift_left, literal=True)
bitwise_or = promoting(binary.bit_or)
bitwise_right_shift = promoting(binary.shift_right, literal=True)
bitwise_xor = promoting(binary.bit_xor)
copysign = promoting(combine.copysign)
divide = promoting(binary.div)
equal = promoting(binary.equal)
floor_divide = promoting(binary.floor_div, literal=True)
greater = promoting(binary.greater)
greater_equal = promoting(binary.greater_equal)
hypot = promoting(unary.hypot)
less = promoting(binary.less)
less_equal = promoting(binary.less_equal)
logaddexp = promoting(exponential.logaddexp)
logical_and = promoting(combine.logical_and)
logical_or = promoting(combine.logical_or)
logical_xor = promoting(combine.logical_xor)
maximum = promoting(binary.maximum)
minimum = promoting(binary.minimum)
multiply = promoting(binary.mul)
nextafter = promoting(rounding.nextafter)
not_equal = promoting(binary.not_equal)
pow = promoting(binary.pow, literal=True)
remainder = promoting(rounding.remainder, literal=True)
subtract = promoting(binary.sub)


# --- of three -------------------------------------------------------------------------------------


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """x within min .. max, numbers or arrays that broadcast, in x's dtype; None is no bound.

    Raises DTypeError for bounds whose dtype is not within x's.
    """
    bounds = [each for each in (min, max) if each is not None]
    if isinstance(x, Array) and common_dtype((x, *bounds)) is not x.dtype:
        raise DTypeError(f"clip: x is {x.dtype.name}, and a bound is of a wider dtype; cast it")
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


where = promoting(binary.where, kept=1)

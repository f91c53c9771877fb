# Made from the table of names, luminal/frontend/names/table.py, by `make names`.

from collections.abc import Callable
from typing import Any

abs: Callable[..., Any]
acos: Callable[..., Any]
acosh: Callable[..., Any]
add: Callable[..., Any]
asin: Callable[..., Any]
asinh: Callable[..., Any]
atan: Callable[..., Any]
atan2: Callable[..., Any]
atanh: Callable[..., Any]
bitwise_and: Callable[..., Any]
bitwise_invert: Callable[..., Any]
bitwise_left_shift: Callable[..., Any]
bitwise_or: Callable[..., Any]
bitwise_right_shift: Callable[..., Any]
bitwise_xor: Callable[..., Any]
ceil: Callable[..., Any]
conj: Callable[..., Any]
copysign: Callable[..., Any]
cos: Callable[..., Any]
cosh: Callable[..., Any]
divide: Callable[..., Any]
equal: Callable[..., Any]
exp: Callable[..., Any]
expm1: Callable[..., Any]
floor: Callable[..., Any]
floor_divide: Callable[..., Any]
greater: Callable[..., Any]
greater_equal: Callable[..., Any]
hypot: Callable[..., Any]
isfinite: Callable[..., Any]
isinf: Callable[..., Any]
isnan: Callable[..., Any]
less: Callable[..., Any]
less_equal: Callable[..., Any]
log: Callable[..., Any]
log10: Callable[..., Any]
log1p: Callable[..., Any]
log2: Callable[..., Any]
logaddexp: Callable[..., Any]
logical_and: Callable[..., Any]
logical_not: Callable[..., Any]
logical_or: Callable[..., Any]
logical_xor: Callable[..., Any]
maximum: Callable[..., Any]
minimum: Callable[..., Any]
multiply: Callable[..., Any]
negative: Callable[..., Any]
nextafter: Callable[..., Any]
not_equal: Callable[..., Any]
positive: Callable[..., Any]
pow: Callable[..., Any]
real: Callable[..., Any]
reciprocal: Callable[..., Any]
remainder: Callable[..., Any]
round: Callable[..., Any]
sign: Callable[..., Any]
signbit: Callable[..., Any]
sin: Callable[..., Any]
sinh: Callable[..., Any]
sqrt: Callable[..., Any]
square: Callable[..., Any]
subtract: Callable[..., Any]
tan: Callable[..., Any]
tanh: Callable[..., Any]
trunc: Callable[..., Any]

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]

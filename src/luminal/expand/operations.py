"""The operations of expanded IR: one row each, with its types and its meaning in NumPy.

Integers wrap, floats round to nearest even and never trap. Where a row says what operands it takes,
the expansion sees to it: no renderer guards against others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.base import dtypes
from luminal.base.dots import WORD_DOTS, fused, of_library
from luminal.base.dtypes import DType
from luminal.base.records import dataclass
from luminal.expand.ir import Type

Array = NDArray[Any]
Kinds = frozenset[str]

FLOAT: Kinds = frozenset(("float",))
INTEGER: Kinds = frozenset(("int", "uint"))
WORD: Kinds = frozenset(("uint",))
NUMBER: Kinds = FLOAT | INTEGER
BITS: Kinds = INTEGER | {"bool"}
ANY: Kinds = NUMBER | {"bool"}


IN_PAIRS = {dtypes.bfloat16: "narrow_bfloats", dtypes.float16: "narrow_halves"}
"""What rounds two f32 to these as a word, the first one lowest."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`result` makes the type from the operands'; None where the statement says it."""

    name: str
    arity: int
    takes: Kinds
    result: Callable[[Sequence[Type]], Type] | None
    meaning: Callable[..., Array]


def _first(types: Sequence[Type]) -> Type:
    return types[0]


def _truth(types: Sequence[Type]) -> Type:
    return Type(dtypes.bool_, types[0].lanes)


def _arm(types: Sequence[Type]) -> Type:
    return types[1]


def _half(types: Sequence[Type]) -> Type:
    return Type(types[0].dtype, types[0].lanes // 2)


def _lane(types: Sequence[Type]) -> Type:
    return Type(types[0].dtype)


def _shuffled(types: Sequence[Type]) -> Type:
    return Type(types[0].dtype, types[2].lanes)


def _single(types: Sequence[Type]) -> Type:
    return Type(dtypes.float32, types[0].lanes)


def _word(types: Sequence[Type]) -> Type:
    return Type(dtypes.uint16, types[0].lanes)


def _pair(types: Sequence[Type]) -> Type:
    return Type(dtypes.uint32, types[0].lanes)


def _scalar_truth(types: Sequence[Type]) -> Type:
    return Type(dtypes.bool_)


def _function(name: str) -> Callable[[Array], Array]:
    function = of_library(name, 1)
    return lambda x: np.asarray(function(x)).astype(x.dtype)


def _quotient(a: Array, b: Array) -> Array:
    down = a // b
    return np.asarray(down + ((a - down * b != 0) & ((a < 0) != (b < 0))).astype(a.dtype))


def _remainder(a: Array, b: Array) -> Array:
    return np.asarray(a - _quotient(a, b) * b)


def _maximum(a: Array, b: Array) -> Array:
    """NaN wins, and +0 over -0."""
    if a.dtype.kind != "f":
        return np.asarray(np.maximum(a, b))
    larger: Array = np.where(a == b, np.where(np.signbit(a), b, a), np.maximum(a, b))
    return larger


def _minimum(a: Array, b: Array) -> Array:
    """NaN wins, and -0 over +0."""
    if a.dtype.kind != "f":
        return np.asarray(np.minimum(a, b))
    smaller: Array = np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b))
    return smaller


def _number(types: Sequence[Type]) -> Type:
    return Type(dtypes.int64)


def _scaled(x: Array, n: Array) -> Array:
    return np.asarray(np.ldexp(x, n.astype(np.int32)))


def _power_of_two(x: Array) -> Array:
    tiny = np.finfo(x.dtype).tiny
    power = np.exp2(x)
    return np.asarray(np.where(power < tiny, x.dtype.type(0), power))


def _halves(short: DType, x: Array, y: Array) -> Array:
    low, high = (n.astype(short.numpy).view(np.uint16).astype(np.uint32) for n in (x, y))
    return np.asarray(low | high << 16)


def convert(x: Array, to: DType) -> Array:
    """The value of `cast`."""
    return x.astype(to.numpy)


# fmt: off
_TABLE = (
    Operation("add",  2, NUMBER, _first, np.add),
    Operation("sub",  2, NUMBER, _first, np.subtract),
    Operation("mul",  2, NUMBER, _first, np.multiply),
    Operation("div",  2, FLOAT,  _first, np.divide),
    Operation("fma",  3, FLOAT,  _first, fused),        # a*b + c, rounded once
    Operation("sqrt", 1, FLOAT,  _first, np.sqrt),      # rounded correctly
    Operation("floor", 1, FLOAT, _first, np.floor),
    Operation("abs",  1, FLOAT,  _first, np.abs),
    Operation("copysign", 2, FLOAT, _first, np.copysign),  # magnitude, sign
    Operation("fmod", 2, FLOAT,  _first, np.fmod),      # exact, the sign of the first
    Operation("quotient",  2, INTEGER, _first, _quotient),   # toward 0; by neither 0 nor -1
    Operation("remainder", 2, INTEGER, _first, _remainder),  # of that quotient
    Operation("max",  2, NUMBER, _first, _maximum),     # NaN if one is NaN, +0 above -0
    Operation("min",  2, NUMBER, _first, _minimum),
    Operation("and",  2, BITS,   _first, np.bitwise_and),
    Operation("or",   2, BITS,   _first, np.bitwise_or),
    Operation("xor",  2, BITS,   _first, np.bitwise_xor),
    Operation("shl",  2, INTEGER, _first, np.left_shift),    # counts from 0 below the width
    Operation("shr",  2, INTEGER, _first, np.right_shift),   # arithmetic for signed integers
    Operation("lt",   2, NUMBER, _truth, np.less),      # false where an operand is NaN
    Operation("le",   2, NUMBER, _truth, np.less_equal),
    Operation("eq",   2, ANY,    _truth, np.equal),
    Operation("ne",   2, ANY,    _truth, np.not_equal),      # true where an operand is NaN
    Operation("select", 3, ANY,  _arm,   np.where),
    # To integers from floats that are in range, toward 0; to integers from wider ones the low bits;
    # from bool 0 or 1, never to bool.
    Operation("cast", 1, ANY,    None,   convert),
    Operation("bitcast", 1, NUMBER, None, lambda x, to: x.view(to.numpy)),
    # Of the C library, in f64: for angles that are huge.
    Operation("sin",  1, FLOAT,  _first, _function("sin")),
    Operation("cos",  1, FLOAT,  _first, _function("cos")),
    # What only some machines have: `expand` is told which, and for which types.
    Operation("scale", 2, FLOAT, _first, _scaled),           # x * 2**n, n integral, rounded once
    Operation("power_of_two", 1, FLOAT, _first, _power_of_two),  # within 2 ulp, no subnormal ones
    *(Operation(dot.name, 3, WORD, _first, dot.of_words) for dot in WORD_DOTS.values()),
    Operation("widen_half", 1, WORD, _single, lambda x: x.view(np.float16).astype(np.float32)),
    Operation("widen_bfloat", 1, WORD, _single,
              lambda x: x.view(dtypes.bfloat16.numpy).astype(np.float32)),
    Operation("narrow_half", 1, FLOAT, _word, lambda x: x.astype(np.float16).view(np.uint16)),
    Operation("narrow_bfloat", 1, FLOAT, _word,
              lambda x: x.astype(dtypes.bfloat16.numpy).view(np.uint16)),
    *(Operation(name, 2, FLOAT, _pair, partial(_halves, to)) for to, name in IN_PAIRS.items()),
    # Lanes.
    Operation("splat", 1, ANY,   None,   lambda x, to: x),   # a scalar in every lane
    Operation("lower", 1, ANY,   _half,  lambda x: x[: len(x) // 2]),
    Operation("upper", 1, ANY,   _half,  lambda x: x[len(x) // 2 :]),
    Operation("extract", 2, ANY, _lane,  lambda x, lane: x[lane]),  # a constant lane
    Operation("shuffle", 3, ANY, _shuffled, lambda x, y, lanes: np.concatenate((x, y))[lanes]),
    Operation("count", 1, frozenset(("bool",)), _number, lambda x: np.array([x.sum()])),
    Operation("any",  1, frozenset(("bool",)), _scalar_truth, np.any),
)
# fmt: on
OPERATIONS: Mapping[str, Operation] = {row.name: row for row in _TABLE}

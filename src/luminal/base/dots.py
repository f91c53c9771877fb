"""Dots: what a device multiplies and adds in one go, a plain multiply-add first of all.

A row says what is multiplied, how many products are added to one accumulator and with which
roundings; its `meaning` is what every interpreter computes. Whoever asks for a row by its numbers
instead of its name needs no change when a machine brings another one.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import enum
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.base.dtypes import (
    DType,
    bfloat16,
    float32,
    int8,
    int32,
    uint8,
    uint16,
    uint32,
    uint64,
)
from luminal.base.records import dataclass

Array = NDArray[Any]
WORDS = {dtype.size: dtype for dtype in (uint16, uint32, uint64)}
OF_BITS = frozenset(("And", "Or", "Xor"))
"""Operations on each bit alone: on words of neighbours they are those on the neighbours."""
ON_BITS = OF_BITS | {"Shl", "Shr"}
"""Those that a word does for all its neighbours at once by one number, if these are unsigned."""


class Rounding(enum.Enum):
    """What a sum of products loses."""

    EACH = "each"  # rounded after every product, the last neighbour's first; no product is rounded
    NONE = "none"  # nothing: integers wrap


# The plain multiply-add is the row of one neighbour, so nothing above asks whether there is a
# special instruction: it takes a row, and the row says how operands lie.
@dataclass(frozen=True, slots=True)
class Dot:
    """`acc + a[0]*b[0] + ... + a[k-1]*b[k-1]`, for one result at a time.

    The `k` neighbours along the sum are held side by side in either factor: a word. `a` and `b` are
    the dtypes of the factors, `accumulator` that of the sum.
    """

    name: str
    k: int
    a: DType
    b: DType
    accumulator: DType
    rounding: Rounding

    @property
    def word(self) -> DType:
        """The unsigned integer that holds the neighbours of a factor."""
        return WORDS[self.k * self.a.size]

    def meaning(self, acc: Array, a: Array, b: Array) -> Array:
        """The sum of products added to `acc`, for factors with their neighbours along the last
        axis.

        Of floats the order and the roundings are the hardware's, which may take subnormals as zero:
        what is computed here is near it.
        """
        # The order in which a machine adds products differs from one to the next, so this is near
        # them all; where each step rounds once, it is an fma.
        wide = self.accumulator.numpy
        with np.errstate(all="ignore"):
            for n in reversed(range(self.k)):
                x, y = (np.asarray(factor[..., n], wide) for factor in (a, b))
                acc = fused(x, y, acc) if self.rounding is Rounding.EACH else acc + x * y
        return np.asarray(acc, wide)

    def of_words(self, acc: Array, a: Array, b: Array) -> Array:
        """`meaning` of factors that are words."""
        parts = (
            np.ascontiguousarray(x).view(dtype.numpy).reshape(*x.shape, self.k)
            for x, dtype in ((a, self.a), (b, self.b))
        )
        return self.meaning(acc, *parts)

    def __str__(self) -> str:
        return self.name


@cache
def multiply_add(dtype: DType) -> Dot:
    """The row that every machine has: one product, of floats rounded once."""
    return Dot(dtype.name, 1, *(dtype,) * 3, Rounding.EACH if dtype.is_float else Rounding.NONE)


BF16_PAIRS = Dot("bf16x2", 2, bfloat16, bfloat16, float32, Rounding.EACH)
INT8_FOURS = Dot("i8x4", 4, int8, int8, int32, Rounding.NONE)
UINT8_BY_INT8 = Dot("u8i8x4", 4, uint8, int8, int32, Rounding.NONE)
DOTS = {dot.name: dot for dot in (BF16_PAIRS, INT8_FOURS, UINT8_BY_INT8)}
"""Those that only some machines have."""
UNSIGNED = {INT8_FOURS: UINT8_BY_INT8}
"""What does the same for a first factor that is unsigned: `a*b = (a + 128)*b - 128*b`."""


def of_library(name: str, arity: int, kind: Any = ctypes.c_double) -> Callable[..., Array]:
    """A function of the C library, element by element."""
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    function.restype, function.argtypes = kind, [kind] * arity
    elementwise: Callable[..., Array] = np.frompyfunc(function, arity, 1)
    return elementwise


_FMA = {4: of_library("fmaf", 3, ctypes.c_float), 8: of_library("fma", 3)}


def fused(a: Array, b: Array, c: Array) -> Array:
    """`a*b + c` of floats, rounded once."""
    return np.asarray(_FMA[a.dtype.itemsize](a, b, c)).astype(a.dtype)

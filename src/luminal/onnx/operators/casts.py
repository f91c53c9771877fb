"""Casts between dtypes, narrow ones among them.

A narrow dtype has at most 256 values: it is decoded by a table, and encoded by a search among the
values that lie between its neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import luminal as lm
from luminal.base import dtypes
from luminal.base.dtypes import DType
from luminal.frontend.tensor import Tensor
from luminal.onnx.call import Call
from luminal.onnx.errors import UnsupportedError
from luminal.onnx.table import operator
from luminal.onnx.values import BITS, NARROW, Coded, dtype_of_number, number_of

INTEGERS = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}
"""The least and the greatest of narrow integers."""

E8M0 = 24


def decoded(x: Coded, dtype: DType) -> Tensor:
    """The elements in a dtype of Luminal."""
    every = np.arange(1 << x.bits, dtype=np.uint8).view(NARROW[x.number])
    # Every narrow dtype in one way: the meaning is ml_dtypes' own, read once into a table of all
    # its codes.
    table = x.codes.graph.constant(every.astype(np.float32))
    return table.take(x.codes.cast(dtypes.int32)).cast(dtype)


def encoded(x: Tensor, number: int, *, saturate: bool = True, rounding: str = "up") -> Coded:
    """Elements of a narrow dtype, rounded to nearest even; integers keep their low bits."""
    if number in INTEGERS:
        return Coded(_integers(x, number), number)
    wide = x.cast(dtypes.float32)
    if number == E8M0:
        return Coded(_powers(wide, saturate, rounding), number)
    return Coded(_floats(wide, number, saturate), number)


def _integers(x: Tensor, number: int) -> Tensor:
    mask = (1 << BITS[number]) - 1
    return (x.cast(dtypes.int64) & mask).cast(dtypes.uint8)


def _floats(x: Tensor, number: int, saturate: bool) -> Tensor:
    """The code by the place of |x| among the values' midpoints, by the sign, and by being NaN."""
    bounds, codes = _code_table(number, saturate)
    graph = x.graph
    # Midpoints and not arithmetic on bits: one way for five formats, and ties are where the table
    # says.
    place = lm.searchsorted(graph.constant(bounds), lm.abs(x).reshape(-1), right=True)
    place = lm.where(lm.isnan(x), len(bounds) + 1, place.reshape(*x.extents))
    place = place + lm.signbit(x).cast(dtypes.int64) * (len(bounds) + 2)
    return graph.constant(codes).take(place)


def _code_table(number: int, saturate: bool) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Bounds of |x|, and codes: of values in order, beyond the greatest, NaN; then with a sign.

    A tie belongs to the even code: where that is the lower one, the bound is just above the tie.
    """
    sign = 1 << (BITS.get(number, 8) - 1)
    values = np.arange(sign, dtype=np.uint8).view(NARROW[number]).astype(np.float32)
    finite = values[np.isfinite(values)]
    upper = np.append(finite[1:], 2 * finite[-1] - finite[-2])
    ties = (finite + upper) / 2
    is_even = np.arange(1, len(ties) + 1) % 2 == 0
    bounds = np.where(is_even, ties, np.nextafter(ties, np.float32(np.inf)))
    greatest = len(finite) - 1
    nan, beyond = _SPECIAL[number]
    codes = [*range(len(finite)), greatest if saturate or number == 23 else beyond, nan]
    signed = [code | sign for code in codes]
    if nan == sign:  # one code for NaN, and 0 has no sign
        signed[0] = 0
    return bounds.astype(np.float32), np.array([*codes, *signed], np.uint8)


_SPECIAL = {
    17: (0x7F, 0x7F),
    18: (0x80, 0x80),
    19: (0x7E, 0x7C),
    20: (0x80, 0x80),
    23: (0x00, 0x07),
}
"""The codes of NaN, and of what is beyond the greatest value where that does not saturate."""


def _powers(x: Tensor, saturate: bool, rounding: str) -> Any:
    """The exponent of |x|: float8_e8m0 holds 2 ** (code - 127), and NaN as 255."""
    bits = x.bitcast(dtypes.uint32)
    exponent = ((bits >> 23) & 0xFF).cast(dtypes.int32)
    fraction = (bits & 0x7FFFFF).cast(dtypes.int32)
    # Below the normal floats a fraction of 0x400000 is 2**-127 itself, the least power there is.
    normal = exponent > 0
    if rounding == "up":
        more = (fraction > 0) & (normal | (fraction > 0x400000))
    elif rounding == "down":
        more = lm.zeros_like(normal)
    else:
        more = (fraction >= 0x400000) & (normal | (fraction > 0x400000))
    top = 254 if saturate else 255
    code = lm.minimum(exponent + more.cast(dtypes.int32), top)
    return lm.where(exponent == 255, lm.where(fraction == 0, top, 255), code).cast(dtypes.uint8)


def _converted(x: Tensor | Coded, number: int, *, saturate: bool, rounding: str) -> Tensor | Coded:
    if isinstance(x, Coded):
        if x.number == number:
            # Through floats a NaN would come back as the one NaN that the table gives.
            return x
        x = decoded(x, dtypes.float32)
    if number in NARROW:
        return encoded(x, number, saturate=saturate, rounding=rounding)
    dtype = dtype_of_number(number)
    return x.cast(dtype)


@operator("Cast", any_dtype=True)
def cast(call: Call, x: Any) -> Any:
    """To the dtype `to`."""
    return _converted(x, _number(call.required("to")), **_options(call))


@operator("CastLike", any_dtype=True)
def cast_like(call: Call, x: Any, target: Any) -> Any:
    """To the dtype of another tensor."""
    return _converted(x, number_of(target), **_options(call))


def _options(call: Call) -> dict[str, Any]:
    return {
        "saturate": bool(call.attribute("saturate", 1)),
        "rounding": call.attribute("round_mode", "up"),
    }


def _number(to: int | str) -> int:
    """The number of a dtype; the first version has names."""
    if isinstance(to, int):
        return to
    from onnx import TensorProto

    return int(TensorProto.DataType.Value(to))


@operator("BitCast", any_dtype=True)
def bit_cast(call: Call, x: Any) -> Any:
    """Reads the same bits as another dtype."""
    number = call.required("to")
    if isinstance(x, Coded):
        x = x.codes
        if number not in NARROW:
            return x.bitcast(dtype_of_number(number))
    if number in NARROW:
        if BITS.get(number, 8) != 8 or x.dtype.size != 1:
            raise UnsupportedError(f"BitCast of {x.dtype.name} to {NARROW[number]}")
        return Coded(x.bitcast(dtypes.uint8), number)
    return x.bitcast(dtype_of_number(number))

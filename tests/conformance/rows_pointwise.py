"""Rows of ops element by element that are exact or nearly so: arithmetic, order, bits, casts."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

import luminal as lm
from luminal.base.dtypes import dtype_of
from tests.conformance.rows import ANY, FLOATS, INTS, Array, Row, by_torch, pointwise, unary

BITS = ("bool", "int8", "int64", "uint8", "uint32")
NUMBERS = ("float32", "float64", "bfloat16", "int32", "int64", "uint8")
WIDE_FLOATS = ("float32", "float64", "bfloat16")

ROUNDING = [
    unary("abs", np.abs, (-9, 9), (*FLOATS, *INTS)),
    unary("neg", np.negative, (-9, 9), (*FLOATS, *INTS)),
    unary("sign", np.sign, (-9, 9), (*FLOATS, *INTS),
          note="NaN of NaN, as NumPy; PyTorch gives 0"),
    unary("floor", np.floor, (-9, 9)),
    unary("ceil", np.ceil, (-9, 9)),
    unary("round", np.round, (-9, 9), note="halves go to the even neighbour, in both"),
    unary("trunc", np.trunc, (-9, 9)),
    unary("frac", by_torch(torch.frac), (-9, 9), against="torch.frac"),
    pointwise("fmod", np.fmod, (-9, 9), (0.5, 4), dtypes=WIDE_FLOATS, special=False),
    pointwise("copysign", np.copysign, (-9, 9), (-9, 9), dtypes=WIDE_FLOATS),
    unary("isnan", np.isnan),
    unary("isinf", np.isinf),
    unary("isfinite", np.isfinite),
    unary("isposinf", np.isposinf, dtypes=WIDE_FLOATS),
    unary("isneginf", np.isneginf, dtypes=WIDE_FLOATS),
    unary("signbit", np.signbit, dtypes=(*WIDE_FLOATS, "int32")),
    pointwise("heaviside", np.heaviside, (-2, 2), (0, 1), dtypes=WIDE_FLOATS,
              note="NaN of NaN, as NumPy; PyTorch gives 0"),
    pointwise("isclose", np.isclose, (-1, 1), (-1, 1), dtypes=("float32", "float64"),
              special=False),
    unary("nan_to_num", by_torch(lambda x: torch.nan_to_num(x, 0.0, 9.0, -9.0)), (-9, 9),
          against="torch.nan_to_num",
          call=lambda x: x.nan_to_num(0.0, 9.0, -9.0)),
]  # fmt: skip

ARITHMETIC = [
    pointwise("add", np.add, (-9, 9), (-9, 9), dtypes=(*NUMBERS, "bool"),
              note="0-d tensors and numbers promote as in PyTorch; a negative number wraps in an "
              "unsigned dtype, as there, also in comparisons; one beyond the dtype's range raises, "
              "PyTorch wraps it"),
    pointwise("sub", np.subtract, (0, 9), (-9, 9), dtypes=NUMBERS,
              note="bools have no difference, in both"),
    pointwise("mul", np.multiply, (-9, 9), (-9, 9), dtypes=(*NUMBERS, "bool")),
    pointwise("div", np.true_divide, (-9, 9), (1, 9), dtypes=(*FLOATS, "int32"),
              note="integers give float32, as PyTorch; NumPy gives float64. n / x is rounded "
              "once, PyTorch's is n * (1 / x)"),
    pointwise("floor_div", np.floor_divide, (-9, 9), (1, 4), dtypes=("float32", "int32", "uint8"),
              call=lambda x, y: x // y, special=False,
              note="integers by 0 give 0, as NumPy; PyTorch raises"),
    pointwise("mod", np.mod, (-9, 9), (1, 4), dtypes=("float32", "int32", "uint8"),
              call=lambda x, y: x % y, special=False,
              note="the sign of the divisor, as Python; integers by 0 give 0, PyTorch raises"),
    pointwise("pow", np.power, (0.1, 4), (-3, 3), dtypes=WIDE_FLOATS,
              note="integers to a negative number raise, as both; to negative elements they "
              "truncate toward 0, as PyTorch"),
    unary("pow of a number", lambda x: x**3, (-4, 4), NUMBERS, call=lambda x: x**3),
    pointwise("maximum", np.maximum, (-9, 9), (-9, 9), dtypes=(*NUMBERS, "bool")),
    pointwise("minimum", np.minimum, (-9, 9), (-9, 9), dtypes=(*NUMBERS, "bool")),
    pointwise("fmax", np.fmax, (-9, 9), (-9, 9), dtypes=WIDE_FLOATS),
    pointwise("fmin", np.fmin, (-9, 9), (-9, 9), dtypes=WIDE_FLOATS),
    unary("clip", lambda x: np.clip(x, -2, 5), (-9, 9), (*FLOATS, "int32"),
          call=lambda x: x.clip(-2, 5)),
    pointwise("lerp", lambda a, b, t: a + t * (b - a), (-9, 9), (-9, 9), (0, 1),
              dtypes=WIDE_FLOATS, largest=True, special=False),
    pointwise("addcdiv", lambda a, b, c: a + b / c, (-9, 9), (-9, 9), (1, 9),
              dtypes=WIDE_FLOATS, largest=True, special=False),
    pointwise("addcmul", lambda a, b, c: a + b * c, (-9, 9), (-9, 9), (-9, 9),
              dtypes=WIDE_FLOATS, largest=True, special=False),
]  # fmt: skip

COMPARISON = [
    pointwise("eq", np.equal, (-2, 2), (-2, 2), dtypes=(*NUMBERS, "bool")),
    pointwise("ne", np.not_equal, (-2, 2), (-2, 2), dtypes=(*NUMBERS, "bool")),
    pointwise("lt", np.less, (-2, 2), (-2, 2), dtypes=(*NUMBERS, "bool")),
    pointwise("le", np.less_equal, (-2, 2), (-2, 2), dtypes=(*NUMBERS, "bool")),
    pointwise("gt", np.greater, (-2, 2), (-2, 2), dtypes=NUMBERS, call=lambda x, y: x > y),
    pointwise("ge", np.greater_equal, (-2, 2), (-2, 2), dtypes=NUMBERS, call=lambda x, y: x >= y),
    pointwise("logical_and", np.logical_and, (-1, 1), (-1, 1), dtypes=ANY),
    pointwise("logical_or", np.logical_or, (-1, 1), (-1, 1), dtypes=ANY),
    pointwise("logical_xor", np.logical_xor, (-1, 1), (-1, 1), dtypes=ANY),
    unary("logical_not", np.logical_not, (-1, 1), ANY),
    pointwise("where", lambda a, b: np.where(a > 0, a, b), (-9, 9), (-9, 9), dtypes=ANY[:-1],
              call=lambda a, b: lm.where(a > 0, a, b)),
    pointwise("masked_fill", lambda a, b: np.where(b > 0, 7, a), (-9, 9), (-9, 9),
              dtypes=WIDE_FLOATS, call=lambda a, b: a.masked_fill(b > 0, 7),
              note="a fraction among integers raises; PyTorch cuts it off"),
]  # fmt: skip

BITWISE = [
    pointwise("bit_and", np.bitwise_and, (-99, 99), (-99, 99), dtypes=BITS,
              call=lambda x, y: x & y),
    pointwise("bit_or", np.bitwise_or, (-99, 99), (-99, 99), dtypes=BITS, call=lambda x, y: x | y),
    pointwise("bit_xor", np.bitwise_xor, (-99, 99), (-99, 99), dtypes=BITS,
              call=lambda x, y: x ^ y),
    unary("invert", np.invert, (-99, 99), BITS, call=lambda x: ~x),
    pointwise("shift_left", np.left_shift, (-99, 99), (0, 7), dtypes=BITS[1:],
              call=lambda x, y: x << y, note="0 past the width, as NumPy; PyTorch: undefined"),
    pointwise("gcd", np.gcd, (-99, 99), (-99, 99), dtypes=("int32", "int64", "int8", "uint8"),
              note="of the least integer 2**63 or a divisor; PyTorch's may be negative"),
    pointwise("lcm", np.lcm, (-11, 11), (-11, 11), dtypes=("int32", "int64", "int8", "uint8"),
              note="wraps in 8 and 16 bits to negative numbers, as PyTorch"),
    pointwise("shift_right", np.right_shift, (-99, 99), (0, 7), dtypes=BITS[1:],
              call=lambda x, y: x >> y),
]  # fmt: skip

CASTS = ("float64", "float16", "float8_e4m3fn", "float8_e5m2", "int32", "uint8", "bool")


def _cast(name: str, x: Array) -> Array:
    """NumPy's cast, but for what it makes of infinity in a float that has none."""
    dtype = dtype_of(name)
    return dtype.rounded(x).astype(np.float64) if dtype.is_moved_only else x.astype(name)


CONVERSION = [
    unary(f"cast to {name}", partial(_cast, name), (0, 99), CASTS,
          call=lambda x, name=name: x.cast(name), against=f"numpy.astype({name})",
          result=name if name.startswith("float") else None,
          known={f"{d} special": "NumPy's is undefined for NaN and inf: NaN gives 0, inf saturates"
                 for d in CASTS if d.startswith("float") and name.startswith(("int", "uint"))})
    for name in ("float32", "float64", *CASTS[2:4], "int8", "int64", "uint8", "bool")
]  # fmt: skip

ROWS: list[Row] = [*ROUNDING, *ARITHMETIC, *COMPARISON, *BITWISE, *CONVERSION]

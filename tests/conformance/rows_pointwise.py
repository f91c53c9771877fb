"""Rows of ops that work element by element, on one operand or several."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
import torch
import torch.nn.functional as F

import luminal as lm
from tests.conformance.rows import (
    ANY,
    FLOATS,
    INTS,
    Row,
    by_torch,
    pointwise,
    unary,
)

BITS = ("bool", "int8", "int64", "uint8", "uint32")
FLOATS_AND_INT = (*FLOATS, "int32")
NUMBERS = ("float32", "float64", "bfloat16", "int32", "int64", "uint8")
WIDE_FLOATS = ("float32", "float64", "bfloat16")


def _torch(op: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """`expected` and `against` of torch.op or torch.nn.functional.op."""
    owner, prefix = (torch, "torch") if hasattr(torch, op) else (F, "torch.nn.functional")
    return {
        "expected": by_torch(lambda *x: getattr(owner, op)(*x, *args, **kwargs)),
        "against": f"{prefix}.{op}",
    }


EXPONENTIAL = [
    unary("exp", np.exp, (-20, 20), FLOATS_AND_INT),
    unary("exp2", np.exp2, (-20, 20), FLOATS_AND_INT),
    unary("expm1", np.expm1, (-5, 5), FLOATS_AND_INT),
    unary("log", np.log, (0.01, 50), FLOATS_AND_INT),
    unary("log2", np.log2, (0.01, 50), FLOATS_AND_INT),
    unary("log10", np.log10, (0.01, 50), FLOATS_AND_INT),
    unary("log1p", np.log1p, (-0.9, 9), FLOATS_AND_INT),
    unary("sqrt", np.sqrt, (0, 50), FLOATS_AND_INT),
    unary("rsqrt", lambda x: 1 / np.sqrt(x), (0.01, 50)),
    unary("cbrt", np.cbrt, (-50, 50)),
    unary("reciprocal", lambda x: 1 / x, (0.2, 50)),
    unary("square", np.square, (-9, 9), NUMBERS),
    pointwise("logaddexp2", np.logaddexp2, (-9, 9), (-9, 9), dtypes=WIDE_FLOATS, largest=True),
    pointwise("logaddexp", np.logaddexp, (-9, 9), (-9, 9), dtypes=WIDE_FLOATS, largest=True),
    pointwise("hypot", np.hypot, (-9, 9), (-9, 9), dtypes=WIDE_FLOATS),
]

TRIGONOMETRIC = [
    unary("sin", np.sin, (-100, 100), FLOATS_AND_INT),
    unary("cos", np.cos, (-100, 100), FLOATS_AND_INT),
    unary("tan", np.tan, (-9, 9)),
    unary("asin", np.arcsin, (-1, 1)),
    unary("acos", np.arccos, (-1, 1)),
    unary("atan", np.arctan, (-9, 9)),
    unary("sinh", np.sinh, (-9, 9)),
    unary("cosh", np.cosh, (-9, 9)),
    unary("tanh", np.tanh, (-9, 9), FLOATS_AND_INT),
    unary("asinh", np.arcsinh, (-50, 50)),
    unary("acosh", np.arccosh, (1, 50)),
    unary("atanh", np.arctanh, (-0.99, 0.99)),
    pointwise("atan2", np.arctan2, (-9, 9), (-9, 9), dtypes=WIDE_FLOATS),
]

SPECIAL = [
    unary("sigmoid", scipy.special.expit, (-20, 20), FLOATS_AND_INT),
    unary("logit", scipy.special.logit, (0.01, 0.45)),
    unary("erf", scipy.special.erf, (-4, 4)),
    unary("erfc", scipy.special.erfc, (-4, 4)),
    unary("sinc", np.sinc, (-9, 9), WIDE_FLOATS, largest=True),
    pointwise("xlogy", scipy.special.xlogy, (-9, 9), (0.1, 9), dtypes=WIDE_FLOATS),
    unary("deg2rad", np.deg2rad, (-360, 360), WIDE_FLOATS),
    unary("rad2deg", np.rad2deg, (-9, 9), WIDE_FLOATS),
]

ROUNDING = [
    unary("abs", np.abs, (-9, 9), (*FLOATS, *INTS)),
    unary("neg", np.negative, (-9, 9), (*FLOATS, *INTS)),
    unary("sign", np.sign, (-9, 9), (*FLOATS, *INTS)),
    unary("floor", np.floor, (-9, 9)),
    unary("ceil", np.ceil, (-9, 9)),
    unary("round", np.round, (-9, 9), note="halves go to the even neighbour, in both"),
    unary("trunc", np.trunc, (-9, 9)),
    unary("frac", **_torch("frac"), over=(-9, 9)),
    pointwise("fmod", np.fmod, (-9, 9), (0.5, 4), dtypes=WIDE_FLOATS, special=False),
    pointwise("copysign", np.copysign, (-9, 9), (-9, 9), dtypes=WIDE_FLOATS),
    unary("isnan", np.isnan),
    unary("isinf", np.isinf),
    unary("isfinite", np.isfinite),
    unary("isposinf", np.isposinf, dtypes=WIDE_FLOATS),
    unary("isneginf", np.isneginf, dtypes=WIDE_FLOATS),
    unary("signbit", np.signbit, dtypes=(*WIDE_FLOATS, "int32")),
    pointwise("heaviside", np.heaviside, (-2, 2), (0, 1), dtypes=WIDE_FLOATS),
    pointwise("isclose", np.isclose, (-1, 1), (-1, 1), dtypes=("float32", "float64"),
              special=False),
    unary("nan_to_num", **_torch("nan_to_num", 0.0, 9.0, -9.0), over=(-9, 9),
          call=lambda x: x.nan_to_num(0.0, 9.0, -9.0)),
]  # fmt: skip

ARITHMETIC = [
    pointwise("add", np.add, (-9, 9), (-9, 9), dtypes=(*NUMBERS, "bool")),
    pointwise("sub", np.subtract, (0, 9), (-9, 9), dtypes=NUMBERS,
              note="bools have no difference, in both"),
    pointwise("mul", np.multiply, (-9, 9), (-9, 9), dtypes=(*NUMBERS, "bool")),
    pointwise("div", np.true_divide, (-9, 9), (1, 9), dtypes=(*FLOATS, "int32"),
              note="integers give float32, as PyTorch; NumPy gives float64"),
    pointwise("floor_div", np.floor_divide, (-9, 9), (1, 4), dtypes=("float32", "int32", "uint8"),
              call=lambda x, y: x // y, special=False,
              note="integers by 0 give 0, as NumPy; PyTorch raises"),
    pointwise("mod", np.mod, (-9, 9), (1, 4), dtypes=("float32", "int32", "uint8"),
              call=lambda x, y: x % y, special=False,
              note="the sign of the divisor, as Python; integers by 0 give 0, PyTorch raises"),
    pointwise("pow", np.power, (0.1, 4), (-3, 3), dtypes=WIDE_FLOATS),
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
              dtypes=WIDE_FLOATS, call=lambda a, b: a.masked_fill(b > 0, 7)),
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
    pointwise("shift_right", np.right_shift, (-99, 99), (0, 7), dtypes=BITS[1:],
              call=lambda x, y: x >> y),
]  # fmt: skip

ACTIVATION = [
    unary("relu", **_torch("relu"), dtypes=FLOATS_AND_INT),
    unary("relu6", **_torch("relu6"), over=(-9, 9)),
    unary("leaky_relu", **_torch("leaky_relu", 0.1), call=lambda x: x.leaky_relu(0.1)),
    unary("elu", **_torch("elu", 1.5), call=lambda x: x.elu(1.5)),
    unary("selu", **_torch("selu")),
    unary("celu", **_torch("celu", 1.5), call=lambda x: x.celu(1.5)),
    unary("gelu", **_torch("gelu"), largest=True),
    unary("gelu tanh", **_torch("gelu", approximate="tanh"), call=lambda x: x.gelu("tanh"),
          largest=True),
    unary("silu", **_torch("silu"), over=(-9, 9)),
    unary("softplus", **_torch("softplus"), over=(-9, 9)),
    unary("softsign", **_torch("softsign"), over=(-9, 9)),
    unary("hardswish", lambda x: np.where(x < -3, 0, x * np.minimum(np.maximum(x + 3, 0), 6) / 6),
          over=(-9, 9), against="numpy expression", note="0 for -inf; PyTorch gives NaN"),
    unary("hardsigmoid", **_torch("hardsigmoid"), over=(-9, 9)),
    unary("hardtanh", **_torch("hardtanh")),
    unary("mish", **_torch("mish"), over=(-9, 9)),
    unary("tanhshrink", **_torch("tanhshrink"), largest=True),
    unary("softshrink", **_torch("softshrink")),
    unary("hardshrink", **_torch("hardshrink")),
    unary("logsigmoid", **_torch("logsigmoid"), over=(-9, 9)),
    unary("threshold", **_torch("threshold", 0.5, 7.0), call=lambda x: x.threshold(0.5, 7.0)),
]  # fmt: skip

CONVERSION = [
    unary(f"cast to {name}", lambda x, name=name: x.astype(name), (0, 99),
          ("float64", "float16", "int32", "uint8", "bool"), call=lambda x, name=name: x.cast(name),
          against=f"numpy.astype({name})", result=name if name.startswith("float") else None,
          known={f"{d} special": "NumPy's is undefined for NaN and inf: NaN gives 0, inf saturates"
                 for d in ("float64", "float16") if name.startswith(("int", "uint"))})
    for name in ("float32", "float64", "int8", "int64", "uint8", "bool")
]  # fmt: skip

ROWS: list[Row] = [
    *EXPONENTIAL, *TRIGONOMETRIC, *SPECIAL, *ROUNDING, *ARITHMETIC, *COMPARISON, *BITWISE,
    *ACTIVATION, *CONVERSION,
]  # fmt: skip

"""Rows of functions of one real variable or two, and of activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
import torch
import torch.nn.functional as F

from tests.conformance.rows import FLOATS, Row, by_torch, pointwise, unary

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

ACTIVATION = [
    unary("relu", **_torch("relu"), dtypes=FLOATS_AND_INT),
    unary("relu6", **_torch("relu6"), over=(-9, 9)),
    unary("leaky_relu", **_torch("leaky_relu", 0.1), call=lambda x: x.leaky_relu(0.1)),
    unary("elu", **_torch("elu", 1.5), call=lambda x: x.elu(1.5)),
    unary("selu", **_torch("selu")),
    unary("celu", **_torch("celu", 1.5), call=lambda x: x.celu(1.5)),
    unary("gelu", **_torch("gelu"), largest=True,
          note="inf of inf; PyTorch's vectors give NaN"),
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

ROWS: list[Row] = [*EXPONENTIAL, *TRIGONOMETRIC, *SPECIAL, *ACTIVATION]

"""Activations: what layers apply element by element. Integers give float32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from luminal.base.dtypes import float32, float64
from luminal.base.errors import DTypeError, ShapeError
from luminal.frontend.handle import axis_of, describe, in_float, numpy_names
from luminal.frontend.pointwise.binary import fill_value, where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.pointwise.exponential import sigmoid
from luminal.frontend.pointwise.trigonometric import tanh
from luminal.frontend.pointwise.unary import polynomial

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

# Klambauer et al., arXiv 1706.02515: the fixed point of mean 0 and variance 1
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


# --- rectifiers -----------------------------------------------------------------------------------


@differentiated(lambda g, y, x: where(x <= 0, 0, g))
def relu(x: Tensor) -> Tensor:
    """max(x, 0); NaN stays."""
    return x.maximum(0)


@differentiated(lambda g, y, x: where((x <= 0) | (x >= 6), 0, g))
def relu6(x: Tensor) -> Tensor:
    """min(max(x, 0), 6); NaN stays."""
    return x.clip(0, 6)


@in_float
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    return where(x > 0, x, x * negative_slope)


def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight * x; weight has one element, or one per channel (dim 1).

    Raises ShapeError for another number of weights. He et al., arXiv 1502.01852.
    """
    if weight.ndim > 1:
        raise ShapeError(f"prelu: the weight is {describe(weight)}; it takes 0 or 1 dims")
    if weight.ndim == 1 and x.ndim == 0:
        weight = weight.reshape(())
    elif weight.ndim == 1 and x.ndim > 1:
        weight = weight.reshape(-1, *(1,) * (x.ndim - 2))
    return where(x > 0, x, x * weight)


@in_float
def rrelu(x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3) -> Tensor:
    """Randomized relu at inference: leaky_relu with the middle of lower and upper."""
    return where(x > 0, x, x * ((lower + upper) / 2))


@in_float
def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """x where x > threshold, else `value`; NaN stays."""
    return where(x <= threshold, value, x)


# --- exponential units ----------------------------------------------------------------------------


@in_float
@differentiated(lambda g, y, x, alpha=1.0: where(x > 0, g, g * (y + alpha)))
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (exp(x) - 1). Clevert et al., arXiv 1511.07289."""
    return where(x > 0, x, alpha * x.expm1())


@in_float
def selu(x: Tensor) -> Tensor:
    """scale * elu(x, alpha) with the constants of arXiv 1706.02515."""
    return _SELU_SCALE * elu(x, _SELU_ALPHA)


@in_float
@differentiated(lambda g, y, x, alpha=1.0: where(x > 0, g, g * (y / alpha + 1)))
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha * (exp(x / alpha) - 1). Barron, arXiv 1704.07483."""
    return where(x > 0, x, alpha * (x / alpha).expm1())


# --- gates ----------------------------------------------------------------------------------------


@in_float
def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), also called swish."""
    return x * sigmoid(x)


# log2(Phi(-x)) for 0 <= x < 5.2 in f32, 8.4 in f64; it falls on where no digit of 1 is left
_LOG2_BELOW = {
    float32: (
        -1.0, -1.1511066, -0.459191382, -0.0525616743, 0.00717874104, -0.000240667199,
        -0.000137108073, 2.78460066e-05, -1.78176413e-06,
    ),
    float64: (
        -1.0, -1.1511040990721404, -0.4592240942645283, -0.052421193304284304, 0.006899128662832205,
        5.3353414704522956e-05, -0.0003058943954826379, 7.52674201285135e-05,
        -2.3660316135611742e-06, -4.062272221900431e-06, 1.2818095783955127e-06,
        -5.498975471204442e-08, -1.0310267521301861e-07, 5.0712582829259024e-08,
        -1.463088268535733e-08, 3.0491020373605024e-09, -4.831066152892541e-10,
        5.870907185934567e-11, -5.402883708750882e-12, 3.647692962317437e-13,
        -1.7037344533169008e-14, 4.91381832063731e-16, -6.584222976797574e-18,
    ),
}  # fmt: skip


@differentiated(lambda g, y, x: g * math.sqrt(0.5 / math.pi) * (x * x * -0.5).exp())
def _normal(x: Tensor) -> Tensor:
    """Phi(x) of f32 or f64, within 3 of the last digit of 1. Its logarithm is nearly a polynomial
    of low degree: one power of 2 is half of what erf costs, and nothing cancels out below 0.
    """
    # By symmetry one polynomial serves both sides: Phi(x) = 1 - Phi(-x).
    below = polynomial(abs(x), _LOG2_BELOW).exp2()
    return where(x < 0, below, 1 - below)


@in_float
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), Phi the normal distribution: exactly, or the "tanh" approximation.

    Hendrycks and Gimpel, arXiv 1606.08415.
    """
    if approximate == "none":
        return x * _normal(x)
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return x * 0.5 * (1 + tanh(inner))
    raise DTypeError(f'gelu: approximate={approximate!r} is not known; use "none" or "tanh"')


@in_float
def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x)) = x * n / (n + 2) with n = e * (e + 2), e = exp(x); x beyond 20.

    Misra, arXiv 1908.08681.
    """
    # tanh(log(1 + e)) = (e*e + 2e) / (e*e + 2e + 2): one exponential for three functions. Beyond 20
    # the quotient is 1 in f32, and e*e would overflow.
    e = x.minimum(20).exp()
    n = e * (e + 2)
    return where(x > 20, x, x * (n / (n + 2)))


@numpy_names
@in_float
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half of `dim` times the sigmoid of the second; ShapeError for an odd extent."""
    axis = axis_of("glu", dim, x.ndim)
    extent = x.extents[axis]
    if extent.is_const and extent.value % 2:
        raise ShapeError(f"glu: dim {axis} of {describe(x)} is not even; it is cut in halves")
    values, gates = x.unflatten(axis, (2, -1)).unbind(axis)
    return values * sigmoid(gates)


# --- cheap shapes ---------------------------------------------------------------------------------


@in_float
def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return x / (1 + abs(x))


def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x held in [min_val, max_val]; NaN stays, and so does the dtype of integers."""
    if x.dtype.is_int:
        least = min_val if x.dtype.is_signed else max(min_val, 0)
        ends = (fill_value("hardtanh", x.graph, n, x.dtype) for n in (least, max_val))
        return x.clip(*ends)
    return _held(x, min_val, max_val)


@differentiated(lambda g, y, x, low, high: where((x <= low) | (x >= high), 0, g))
def _held(x: Tensor, low: float, high: float) -> Tensor:
    return x.clip(low, high)


@in_float
@differentiated(lambda g, y, x: where((x > -3) & (x < 3), g / 6, 0))
def hardsigmoid(x: Tensor) -> Tensor:
    """min(max(x + 3, 0), 6) / 6."""
    return (x + 3).clip(0, 6) / 6


@in_float
@differentiated(lambda g, y, x: where(x <= -3, 0, where(x < 3, g * (x / 3 + 0.5), g)))
def hardswish(x: Tensor) -> Tensor:
    """x * (x + 3) / 6 between -3 and 3, 0 below, x above. Howard et al., arXiv 1905.02244."""
    return where(x <= -3, 0, where(x >= 3, x, x * (x + 3) / 6))


@in_float
def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved by `lambd` toward 0, 0 within; NaN stays."""
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, where(x == x, 0, x)))


@in_float
def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0; NaN stays."""
    return where(abs(x) <= lambd, 0, x)

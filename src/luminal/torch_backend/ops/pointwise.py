"""PyTorch's operators that work element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import luminal as lm
from luminal.nn import functional
from luminal.torch_backend.ops.refusals import refuse_where
from luminal.torch_backend.ops.registry import row, rows

Tensor = lm.Tensor

_SAME = """
    abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp
    exp2 expm1 floor frac frexp isfinite isinf isnan isneginf isposinf lgamma log log10 log1p log2
    logical_not mvlgamma nan_to_num neg rad2deg reciprocal relu rsqrt sigmoid
    signbit sin sinc sinh sqrt square tan tanh trunc
    add addcdiv addcmul atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift
    bitwise_xor clamp clamp_max clamp_min copysign eq float_power  fmax fmin
    gcd ge gt hypot isclose lcm ldexp le lerp logaddexp logaddexp2 logical_and logical_or
    logical_xor lt masked_fill maximum minimum mul ne nextafter pow rsub sub true_divide
    where xlogy
""".split()

_FUNCTIONAL = """
    celu gelu glu hardshrink hardsigmoid leaky_relu mish relu6 selu silu softshrink
""".split()

_SPECIAL = """
    bessel_j0 bessel_j1 bessel_y0 bessel_y1 spherical_bessel_j0 entr erfcx i0e i1 i1e log_ndtr
    modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 ndtri
    scaled_modified_bessel_k0 scaled_modified_bessel_k1 xlog1py zeta
    chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w
    shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
    shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w
    hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p
""".split()

rows({name: getattr(lm, name) for name in _SAME})
rows({name: getattr(functional, name) for name in _FUNCTIONAL})
rows(
    {
        "bitwise_not": lm.bitwise_not,
        "__and__": lm.bitwise_and,
        "__or__": lm.bitwise_or,
        "__xor__": lm.bitwise_xor,
        "__lshift__": lm.bitwise_left_shift,
        "__rshift__": lm.bitwise_right_shift,
        "i0": lm.special.i0,
        "polygamma": lm.special.polygamma,
    }
)
rows({f"special_{name}": getattr(lm.special, name) for name in _SPECIAL})


def _is_zero_free(b: Any) -> bool:
    """Can a divisor be seen to be no integer 0?"""
    if isinstance(b, Tensor):
        return b.dtype.is_float
    return not isinstance(b, int) or b != 0


def _integer_division(function: Callable[[Any, Any], Tensor]) -> Callable[..., Tensor]:
    """`function` of two operands, which refuses integers by 0, as PyTorch does."""

    def divided(a: Any, b: Any) -> Tensor:
        quotient = function(a, b)
        if not quotient.dtype.is_float and not _is_zero_free(b):
            refuse_where(lm.constant(b) == 0, RuntimeError("ZeroDivisionError"))
        return quotient

    return divided


rows({name: _integer_division(getattr(lm, name)) for name in ("floor_divide", "fmod", "remainder")})


@row("div")
def div(a: Any, b: Any, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode is None:
        return lm.div(a, b)
    rounded = _integer_division(lambda a, b: lm.div(a, b, rounding_mode=rounding_mode))
    return rounded(a, b)


@row("sign", "sgn")
def sign(x: Tensor) -> Tensor:
    """The sign, which is 0 of NaN."""
    return lm.where(x != x, 0, lm.sign(x)) if x.dtype.is_float else lm.sign(x)


@row("heaviside")
def heaviside(x: Tensor, values: Tensor) -> Tensor:
    """The step function, which is 0 of NaN."""
    step = lm.heaviside(x, values)
    return lm.where(x != x, 0, step) if x.dtype.is_float else step


@row("logit")
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """`eps` above a half leaves no values between the bounds: then the lower one comes first."""
    if eps is None or not eps > 0.5:
        return lm.logit(x, eps if eps is not None and eps >= 0 else None)
    return lm.logit(lm.where(x < eps, eps, lm.where(x > 1 - eps, 1 - eps, x)))


@row("round")
def round_(x: Tensor, decimals: int = 0) -> Tensor:
    return lm.round(x, decimals) if decimals else lm.round(x)


@row("softplus")
def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return functional.softplus(x, beta, threshold)


@row("elu")
def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    if (scale, input_scale) == (1, 1):
        return functional.elu(x, alpha)
    return lm.where(x > 0, x * scale, lm.expm1(x * input_scale) * (alpha * scale))


@row("threshold")
def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """Numbers are cut to x's dtype; NaN stays, and is above no threshold."""
    least, other = (lm.constant(number).cast(x.dtype) for number in (threshold, value))
    return lm.where(x <= least, other, x)


@row("hardtanh")
def hardtanh(x: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    """Bounds of integers are cut to whole numbers."""
    if not x.dtype.is_float:
        min_val, max_val = int(min_val), int(max_val)
    return functional.hardtanh(x, min_val, max_val)


@row("hardswish")
def hardswish(x: Tensor) -> Tensor:
    """NaN of -inf, as the product of -inf and 0 is."""
    return x * lm.clamp(x + 3, 0, 6) / 6


@row("_prelu_kernel")
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    return lm.where(x > 0, x, weight * x)


@row("log_sigmoid_forward")
def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    return functional.logsigmoid(x), lm.exp(-lm.abs(x))


@row("alias", "clone", "detach", "lift_fresh_copy", "lift_fresh", "lift")
def same(x: Tensor) -> Tensor:
    return x


@row("copy")
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.cast(x.dtype).expand(*x.extents)


@row("fill")
def fill(x: Tensor, value: Any) -> Tensor:
    return copy(x, lm.constant(value, None if isinstance(value, Tensor) else x.dtype))


@row("_to_copy")
def to_copy(x: Tensor, dtype: Any = None, non_blocking: bool = False) -> Tensor:
    return x if dtype is None else x.cast(dtype)


@row("prims::convert_element_type")
def convert_element_type(x: Tensor, dtype: Any) -> Tensor:
    return x.cast(dtype)


@row("prims::fma")
def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a * b + c


@row("view.dtype")
def view_dtype(x: Tensor, dtype: Any) -> Tensor:
    return x.view(dtype)

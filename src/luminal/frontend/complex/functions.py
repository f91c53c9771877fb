"""Functions of complex numbers as formulas of their parts: of two real Tensors each.

The formulas are Kahan's ("Branch cuts for complex elementary functions", 1987) or those of the C
standard's Annex G, as far as they cost little: roots and inverse functions are right on both sides
of their cuts, and infinite parts give what NumPy gives in most cases. docs/pytorch.md says where
not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from luminal.frontend.pointwise.binary import where
from luminal.frontend.pointwise.unary import hypot

Parts = tuple[Any, Any]


def quotient(a: Any, b: Any, c: Any, d: Any) -> Parts:
    """(a + ib) / (c + id) by Smith's formula, as NumPy: no square overflows. b may be None: 0."""
    is_wide = c.abs() >= d.abs()
    large, small = where(is_wide, c, d), where(is_wide, d, c)
    ratio = small / large
    # Of 0 / 0 a real numerator makes an infinity, as in NumPy, and not NaN.
    is_zero = (c == 0) & (d == 0)
    ratio = where(is_zero, 0, ratio)
    scale = where(is_zero, math.inf, 1 / (large + small * ratio))
    if b is None:
        along, across = a * scale, a * ratio * scale
        return where(is_wide, along, across), -where(is_wide, across, along)
    first, second = where(is_wide, a, b), where(is_wide, b, a)
    turned = (second - first * ratio) * scale
    return (first + second * ratio) * scale, where(is_wide, turned, -turned)


def _times(size: Any, turn: Any) -> Any:
    """size * turn, and 0 where either is 0 and the other infinite or NaN."""
    product = size * turn
    return where(product.isnan() & ((size == 0) | (turn == 0)), 0, product)


def exp(x: Any, y: Any) -> Parts:
    """e to the power of z, in two steps: exp(x) may overflow where the result does not."""
    half = (x * 0.5).exp()
    return _times(half, y.cos()) * half, _times(_times(half, y.sin()), half)


def expm1(x: Any, y: Any) -> Parts:
    """exp(z) - 1 without cancellation near 0."""
    half = (y * 0.5).sin()
    return _times(x.expm1(), y.cos()) - 2 * half * half, exp(x, y)[1]


def _log_size(x: Any, y: Any) -> Any:
    """log(hypot(x, y)), with its digits where that is near 1."""
    wide, narrow = x.abs().maximum(y.abs()), x.abs().minimum(y.abs())
    excess = (wide - 1) * (wide + 1) + narrow * narrow  # |z|**2 - 1
    is_near = excess.abs() < 0.5
    near = where(is_near, excess, 0).log1p() * 0.5
    return where(is_near, near, where(is_near, 1, hypot(x, y)).log())


def log(x: Any, y: Any) -> Parts:
    """The logarithm whose imaginary part is the angle."""
    return _log_size(x, y), y.atan2(x)


def _log_to(base: float) -> Callable[[Any, Any], Parts]:
    def logarithm(x: Any, y: Any) -> Parts:
        size, angle = log(x, y)
        return size * (1 / math.log(base)), angle * (1 / math.log(base))

    return logarithm


def log1p(x: Any, y: Any) -> Parts:
    """log(1 + z) without cancellation near 0."""
    excess = x * (2 + x) + y * y  # |1 + z|**2 - 1
    is_near = excess.abs() < 0.5
    near = where(is_near, excess, 0).log1p() * 0.5
    far = where(is_near, 1, hypot(1 + x, y)).log()
    return where(is_near, near, far), y.atan2(1 + x)


def _sign(x: Any) -> Any:
    """-1 of what is negative or -0, else 1."""
    return where(x.signbit(), -1, 1).cast(x.dtype)


def sqrt(x: Any, y: Any) -> Parts:
    """The root whose real part is not negative; its imaginary part has the sign of y."""
    is_right = x >= 0
    # A quarter of both, so that their sum does not overflow. No abs: its derivative at 0 is 0.
    wide = where(is_right, x, -x)
    half = (hypot(x * 0.25, y * 0.25) * 0.5 + wide * 0.125).sqrt() * 2
    sign = _sign(y)
    other = y / where(half == 0, 1, half * 2)
    other = where(y.isinf(), y, other)  # not inf / inf
    return where(is_right, half, other * sign), where(is_right, other, half * sign)


def sinh(x: Any, y: Any) -> Parts:
    """(exp(z) - exp(-z)) / 2."""
    return _times(x.sinh(), y.cos()), _times(x.cosh(), y.sin())


def cosh(x: Any, y: Any) -> Parts:
    """(exp(z) + exp(-z)) / 2."""
    return _times(x.cosh(), y.cos()), _times(x.sinh(), y.sin())


def tanh(x: Any, y: Any) -> Parts:
    """sinh(z) / cosh(z), of which nothing is left of y where |x| is large."""
    # Beyond, tanh(x) is 1 in either dtype, and squares would overflow.
    near = x.clip(-22, 22)
    size, sin, cos = near.sinh(), y.sin(), y.cos()
    share = 1 / (cos * cos + size * size)
    return size * near.cosh() * share, sin * cos * share


def atanh(x: Any, y: Any) -> Parts:
    """The inverse of tanh; cuts: the real axis beyond -1 and 1."""
    sign = _sign(x)
    # Further out nothing changes but digits of what is near 0, and squares would overflow.
    wide, high = (x * sign).clip(-1e18, 1e18), y.clip(-1e18, 1e18)
    size = (4 * wide / ((1 - wide).square() + high * high)).log1p() * 0.25
    return size * sign, (2 * high).atan2((1 - wide) * (1 + wide) - high * high) * 0.5


def _roots(x: Any, y: Any) -> tuple[Parts, Parts, Any]:
    """The roots of 1 - z and 1 + z, and infinity where z is infinite, else 1."""
    most = x.dtype.largest / 16
    is_infinite = x.isinf() | y.isinf()
    x, y = x.clip(-most, most), y.clip(-most, most)  # so that angles of infinities are known
    return sqrt(1 - x, -y), sqrt(1 + x, y), where(is_infinite, math.inf, 1).cast(x.dtype)


def asin(x: Any, y: Any) -> Parts:
    """The inverse of sin; cuts: the real axis beyond -1 and 1."""
    (a, b), (c, d), far = _roots(x, y)
    most = x.dtype.largest / 16
    return x.clip(-most, most).atan2(a * c - b * d), (a * d - b * c).asinh() * far


def acos(x: Any, y: Any) -> Parts:
    """The inverse of cos; cuts: the real axis beyond -1 and 1."""
    (a, b), (c, d), far = _roots(x, y)
    return 2 * a.atan2(c), (b * c - a * d).asinh() * far


def acosh(x: Any, y: Any) -> Parts:
    """The inverse of cosh whose real part is not negative; cut: the real axis below 1."""
    angle, size = acos(x, y)
    is_below = size.signbit()  # the root of -1 that makes the real part positive
    return where(is_below, -size, size), where(is_below, angle, -angle)


def _times_i(function: Callable[[Any, Any], Parts]) -> Callable[[Any, Any], Parts]:
    """f of -i * g(i * z), as sin is of sinh."""

    def turned(x: Any, y: Any) -> Parts:
        real, imag = function(-y, x)
        return imag, -real

    return turned


def cos(x: Any, y: Any) -> Parts:
    """The cosine: cosh of i * z."""
    return cosh(-y, x)


def sigmoid(x: Any, y: Any) -> Parts:
    """1 / (1 + exp(-z))."""
    real, imag = exp(-x, -y)
    return quotient(1, None, 1 + real, imag)


FUNCTIONS: dict[str, Callable[[Any, Any], Parts]] = {
    "exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "log2": _log_to(2),
    "log10": _log_to(10), "sqrt": sqrt, "sinh": sinh, "cosh": cosh, "tanh": tanh,
    "asinh": _times_i(asin), "acosh": acosh, "atanh": atanh, "sin": _times_i(sinh), "cos": cos,
    "tan": _times_i(tanh), "asin": asin, "acos": acos, "atan": _times_i(atanh), "sigmoid": sigmoid,
}  # fmt: skip
"""By their names in `luminal`."""
for _name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
    FUNCTIONS[f"arc{_name}"] = FUNCTIONS[f"a{_name}"]

"""Trigonometric and hyperbolic functions and their inverses, in radians."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from luminal.base.dtypes import float32, float64
from luminal.frontend.handle import Operand, in_float
from luminal.frontend.pointwise.binary import unified, where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.pointwise.unary import is_negative, odd, polynomial

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


# fmt: off
# atan(x) = x + x**3 * p(x**2) for |x| <= 1
_ATAN = {
    float32: (
        -0.33333325, 0.19999619, -0.14279175, 0.110540435, -0.08795821, 0.06707545,
        -0.044218775, 0.022145025, -0.0071344315, 0.001077479,
    ),
    float64: (
        -0.33333333333333276, 0.1999999999998886, -0.1428571428494233, 0.11111111083534594,
        -0.09090908492484247, 0.07692299025679779, -0.06666577657204661, 0.05881676792842148,
        -0.05259241073587786, 0.04744200335439793, -0.04284260603470184, 0.03816093541227586,
        -0.03269609777593125, 0.026023726129900848, -0.018470736602878075, 0.011193234148706223,
        -0.005530661131266075, 0.0021123018875373713, -0.0005798634487546614,
        0.00010120818787100597, -8.401334639834733e-06,
    ),
}
# asin(x) = x + x**3 * p(x**2) for |x| <= 1/2
_ASIN = {
    float32: (0.1666666, 0.07500514, 0.044515852, 0.031813342, 0.014426251, 0.03752511),
    float64: (
        0.16666666666666757, 0.07499999999971792, 0.04464285717359249, 0.0303819427587141,
        0.022372213519528925, 0.017351638714398234, 0.013980498610065704, 0.011401549996450223,
        0.010765491204786247, 0.00376196879066869, 0.021572928781007486, -0.020809812463918245,
        0.03251104192302525,
    ),
}
# fmt: on
# pi as the sum of two numbers of the type
_PI = {
    float32: (3.1415927410125732, -8.742277657347586e-08),
    float64: (math.pi, 1.2246467991473532e-16),
}


def _from_pi(x: Tensor, share: float) -> Tensor:
    """`share * pi - x`; share is a power of 2."""
    # pi in one number of the type is wrong by half an ulp of pi, which is many ulp of a small
    # result; the second number adds the digits that lack.
    high, low = _PI[x.dtype]
    return share * high - (x - share * low)


@in_float
@differentiated(lambda g, y, x: g * (1 + y * y))
def tan(x: Tensor) -> Tensor:
    """sin(x) / cos(x), within 4 ulp up to |x| = 1000."""
    return x.sin() / x.cos()


def _atan_unit(x: Tensor) -> Tensor:
    """atan for 0 <= x <= 1."""
    square = x * x
    return x + x * square * polynomial(square, _ATAN)


@in_float
@differentiated(lambda g, y, x: g / (1 + x * x))
def atan(x: Tensor) -> Tensor:
    """The angle in [-pi/2, pi/2] whose tangent is x, within 3 ulp; pi/2 - atan(1/x) beyond 1."""
    a = abs(x)
    # One polynomial for |x| <= 1: atan(x) = pi/2 - atan(1/x) brings the rest there.
    angle = _atan_unit(where(a > 1, 1 / a, a))
    return odd(where(a > 1, _from_pi(angle, 0.5), angle), x)


def atan2(y: Operand, x: Operand) -> Tensor:
    """The angle in [-pi, pi] of the point (x, y), within 4 ulp: atan of the smaller by the larger.

    As C's for zeros and infinities; integers give float32, NaN stays.
    """
    (b, a), result = unified("atan2", (y, x), floating=True)
    return _angle(b, a).cast(result)


def _angle_derivative(g: Tensor, y: Tensor, b: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """0 at the origin, as PyTorch has it."""
    square = a * a + b * b
    share = where(square == 0, 0, g / where(square == 0, 1, square))
    return share * a, -share * b


@differentiated(_angle_derivative)
def _angle(b: Tensor, a: Tensor) -> Tensor:
    across, up = abs(a), abs(b)
    large = across.maximum(up)
    # The smaller by the larger lies in 0 .. 1, where _atan_unit holds. 0/0 and inf/inf are put in
    # order.
    ratio = across.minimum(up) / large
    ratio = where(across == up, where(large == 0, 0, where(large == math.inf, 1, ratio)), ratio)
    angle = _atan_unit(ratio)
    angle = where(up > across, _from_pi(angle, 0.5), angle)
    angle = where(is_negative(a), _from_pi(angle, 1.0), angle)
    return where(is_negative(b), -angle, angle)


def _asin_half(x: Tensor) -> Tensor:
    """asin for |x| <= 1/2."""
    square = x * x
    return x + x * square * polynomial(square, _ASIN)


def _complement(a: Tensor) -> Tensor:
    """acos(a) for 1/2 <= a <= 1: 2 * asin(sqrt((1 - a) / 2)); NaN beyond 1."""
    return 2 * _asin_half(((1 - a) * 0.5).sqrt())  # 1 - a is exact


@in_float
@differentiated(lambda g, y, x: g * (1 - x * x).rsqrt())
def asin(x: Tensor) -> Tensor:
    """The angle in [-pi/2, pi/2] whose sine is x, within 3 ulp; NaN beyond 1."""
    a = abs(x)
    # Near 1 the slope of asin is infinite; through sqrt((1 - a) / 2) it is finite, and 1 - a is
    # exact.
    far = _from_pi(_complement(a), 0.5)
    return where(a <= 0.5, _asin_half(x), odd(far, x))


@in_float
@differentiated(lambda g, y, x: -g * (1 - x * x).rsqrt())
def acos(x: Tensor) -> Tensor:
    """The angle in [0, pi] whose cosine is x, within 3 ulp; NaN beyond 1."""
    far = _complement(abs(x))
    outer = where(x < 0, _from_pi(far, 1.0), far)
    return where(abs(x) <= 0.5, _from_pi(_asin_half(x), 0.5), outer)


# The derivative of sin(a) / a is a * p(a**2) for |a| < 1: Taylor's series, to the last bit of f64
_SINC = tuple((-1) ** k * 2 * k / math.factorial(2 * k + 1) for k in range(1, 10))


def _sinc_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Where the quotients of sine and cosine cancel, a series."""
    angle = x * math.pi
    is_near = abs(angle) < 1
    square = angle * angle
    near = angle * polynomial(square, dict.fromkeys((float32, float64), _SINC))
    safe = where(is_near, 1, angle)
    return g * math.pi * where(is_near, near, (angle.cos() - y) / safe)


@in_float
@differentiated(_sinc_derivative)
def sinc(x: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
    angle = x * math.pi
    return where(x == 0, 1, angle.sin() / angle)


@in_float
def deg2rad(x: Tensor) -> Tensor:
    """Degrees as radians: x * pi / 180."""
    return x * (math.pi / 180)


@in_float
def rad2deg(x: Tensor) -> Tensor:
    """Radians as degrees: x * 180 / pi."""
    return x * (180 / math.pi)


# --- hyperbolic -----------------------------------------------------------------------------------
#
# The largest errors were measured on 10**6 arguments of all magnitudes, in ulp of f32; f64 is
# within the same number of ulp unless it says otherwise.


# fmt: off
# tanh(x) = x + x**3 * p(x**2) for |x| < 0.625
_TANH = {
    float32: (
        -0.333333308, 0.133332052, -0.0539467032, 0.0217005006, -0.00817709361,
        0.00214280365,
    ),
    float64: (
        -0.33333333333333315, 0.13333333333329714, -0.053968253966051434,
        0.02186948846864221, -0.008863234312702155, 0.003592114009354029,
        -0.0014557260452763823, 0.0005894523216766531, -0.00023701341144398124,
        9.156166430604595e-05, -3.0190720436126914e-05, 6.044081263911012e-06,
    ),
}
# sinh(x) = x + x**3 * p(x**2) for |x| < 1
_SINH = {
    float32: (0.16666667, 0.008333315, 0.00019841666, 2.789984e-06),
    float64: (
        0.16666666666666669, 0.00833333333333297, 0.00019841269841531245, 2.7557319130352524e-06,
        2.5052126861988845e-08, 1.6056999965268565e-10, 7.765916627971535e-13,
    ),
}
# cosh(x) = 1 + x**2 * p(x**2) for |x| < 1
_COSH = {
    float32: (0.49999997, 0.04166691, 0.0013882321, 2.5522066e-05),
    float64: (
        0.5, 0.04166666666666667, 0.001388888888888825, 2.4801587301936628e-05,
        2.7557319124418086e-07, 2.0876773162643204e-09, 1.1469235157530867e-11,
        4.8549980732029645e-14,
    ),
}
# fmt: on
_BIG = {float32: 1e4, float64: 1e9}  # sqrt(x**2 + 1) is x from here on


@in_float
@differentiated(lambda g, y, x: g * (1 - y * y))
def tanh(x: Tensor) -> Tensor:
    """(e**x - e**-x) / (e**x + e**-x), within 2 ulp everywhere.

    `(1 - d) / (1 + d)` of d = exp(-2|x|) with x's sign, a polynomial below 0.625.
    """
    square = x * x
    # Near 0 the two parts of (1 - d) / (1 + d) cancel: a polynomial below 0.625.
    near = x * (1 + square * polynomial(square, _TANH))
    decay = (abs(x) * -2).exp()
    far = (1 - decay) / (1 + decay)
    return where(abs(x) < 0.625, near, where(x < 0, -far, far))


def _tanhshrink_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    t = tanh(x)
    return g * (t * t)


@in_float
@differentiated(_tanhshrink_derivative)
def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x), without its cancellation near 0."""
    square = x * x
    return where(abs(x) < 0.625, -x * (square * polynomial(square, _TANH)), x - tanh(x))


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """exp(x) / 2 and exp(-x) / 2 for x >= 1; the first overflows only where its value does."""
    # exp(x) / 2 would overflow a step before sinh and cosh do; e**(x - 1) * (e / 2) does not.
    e = (x - 1).exp()  # x - 1 is exact
    return e * (math.e / 2), (0.5 / math.e) / e


def _sinh_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return g * cosh(x)


@in_float
@differentiated(_sinh_derivative)
def sinh(x: Tensor) -> Tensor:
    """(e**x - e**-x) / 2, within 4 ulp; a polynomial below 1."""
    square = x * x
    up, down = _halves(abs(x))
    return where(abs(x) < 1, x + x * square * polynomial(square, _SINH), odd(up - down, x))


@in_float
@differentiated(lambda g, y, x: g * sinh(x))
def cosh(x: Tensor) -> Tensor:
    """(e**x + e**-x) / 2, within 3 ulp; a polynomial below 1."""
    square = x * x
    up, down = _halves(abs(x))
    return where(abs(x) < 1, 1 + square * polynomial(square, _COSH), up + down)


@in_float
@differentiated(lambda g, y, x: g * (x * x + 1).rsqrt())
def asinh(x: Tensor) -> Tensor:
    """log(x + sqrt(x**2 + 1)), odd, within 3 ulp.

    `log1p(a + a**2 / (1 + sqrt(a**2 + 1)))` of a = |x|, `log(a) + log(2)` where squares are huge.
    """
    # log(a + sqrt(a*a + 1)) loses all digits of a small a to the 1; what is left without the 1 is
    # log1p's.
    a = abs(x)
    square = a * a
    near = (a + square / (1 + (1 + square).sqrt())).log1p()
    return odd(where(a < _BIG[x.dtype], near, a.log() + math.log(2)), x)


@in_float
@differentiated(lambda g, y, x: g * (x * x - 1).rsqrt())
def acosh(x: Tensor) -> Tensor:
    """log(x + sqrt(x**2 - 1)), within 3 ulp; NaN below 1.

    `log1p(t + sqrt(t) * sqrt(t + 2))` of t = x - 1, `log(x) + log(2)` where squares are huge.
    """
    # Near 1 x - 1 is exact, and nothing cancels any more.
    t = x - 1
    near = (t + t.sqrt() * (t + 2).sqrt()).log1p()
    return where(x < _BIG[x.dtype], near, x.log() + math.log(2))


@in_float
@differentiated(lambda g, y, x: g / (1 - x * x))
def atanh(x: Tensor) -> Tensor:
    """log((1 + x) / (1 - x)) / 2, within 3 ulp; infinite at 1 and -1, NaN beyond."""
    a = abs(x)
    return odd((2 * a / (1 - a)).log1p() * 0.5, x)

"""The logarithm of the gamma function, its derivatives, and the Hurwitz zeta function."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from luminal.base.dtypes import float32, float64
from luminal.frontend.handle import Operand, in_float
from luminal.frontend.pointwise.binary import unified, where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.pointwise.unary import polynomial

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


# From here on the asymptotic series with seven Bernoulli numbers holds to the last digit of f64.
_SHIFT, _STIRLING = 8, 8.5
# Bernoulli numbers B(2k) / (2k (2k - 1)), B(2k) / 2k and B(2k)
_LGAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_TRIGAMMA = tuple(2 * k * c for k, c in enumerate(_DIGAMMA, 1))  # B(2k)

# lgamma(2 + t) = t * p(t) for |t| <= 1/2
_LGAMMA_NEAR_TWO = {
    float32: (
        0.42278432846069336, 0.32246702909469604, -0.06735190004110336, 0.020581359043717384,
        -0.007391972001641989, 0.002880700398236513, -0.0011537885293364525,
        0.0005664451164193451, -0.00031235627830028534,
    ),
    float64: (
        0.42278433509846713, 0.32246703342411326, -0.06735230105319827, 0.020580808427780404,
        -0.007385551028653873, 0.0028905103310329244, -0.001192753912586913,
        0.0005096695154453676, -0.00022315473870210706, 9.945767310644536e-05,
        -4.492649017533604e-05, 2.0505594177782874e-05, -9.437515259088525e-06,
        4.38468964510872e-06, -2.048650638058676e-06, 9.200865627332866e-07,
        -4.224009847689993e-07, 2.7870898791632095e-07, -1.4119647050723332e-07,
    ),
}  # fmt: skip


def _series(square: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    result = square * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        result = result * square + coefficient
    return result


def _lgamma_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return g * digamma(x)


@in_float
@differentiated(_lgamma_derivative)
def lgamma(x: Tensor) -> Tensor:
    """log(|gamma(x)|); inf at 0 and the negative integers. Exactly 0 at 1 and 2.

    By the recurrence 0 < x < 8.5 moves into 1.5 .. 2.5, where a polynomial times x - 2 keeps the
    digits near the zeros; Stirling's series above, reflection below 0. Within 4 ulp for x > 0, and
    for x < 0 of the largest term.
    """
    # Reflection, gamma(x) gamma(1 - x) = pi / sin(pi x). The sine is taken of x's distance to the
    # nearest whole number: pi * x itself would have no digits of the fraction left where |x| is
    # large.
    a = where(x < 0, 1 - x, x)
    value = where(a < _STIRLING, _near_two(a), _stirling(a))
    fraction = abs(x - x.round())
    sine = where(fraction < 1e-10, fraction, (fraction * math.pi).sin() * (1 / math.pi))
    reflected = where((sine == 0) | (x == -math.inf), math.inf, -sine.log() - value)
    return where(x < 0, reflected, value)


def _near_two(x: Tensor) -> Tensor:
    """lgamma for 0 <= x < 8.5: that of y in 1.5 .. 2.5, and the logarithm of what lies between."""
    low, middle = x < 0.5, x < 1.5  # of x itself: x + 1 may round up to the next border
    y, factor = x, where(low, x * (x + 1), where(middle, x, 1.0))
    distance = where(low, x, where(middle, x - 1, x - 2))
    # gamma(x) = (x - 1) gamma(x - 1), six times at most; steps that are not needed change nothing.
    # The product of factors costs one logarithm, not one each.
    for _ in range(6):
        above = y >= 2.5
        y = where(above, y - 1, y)
        distance = where(above, y - 2, distance)
        factor = where(above, factor * y, factor)
    logarithm = factor.log()
    near = distance * polynomial(distance, _LGAMMA_NEAR_TWO)
    return near + where(middle, -logarithm, logarithm)


def _stirling(x: Tensor) -> Tensor:
    """lgamma for x >= 8.5."""
    inverse = 1 / x
    value = (x - 0.5) * x.log() - x + (0.5 * math.log(2 * math.pi))
    return where(x == math.inf, math.inf, value + inverse * _series(inverse * inverse, _LGAMMA))


def _digamma_derivative(g: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return g * trigamma(x)


@in_float
@differentiated(_digamma_derivative)
def digamma(x: Tensor) -> Tensor:
    """The derivative of lgamma; NaN at the negative integers, -inf at +0, inf at -0."""
    a = where(x <= 0, 1 - x, x)
    low = a < _SHIFT
    # digamma(a) = digamma(a + 8) - sum of 1 / (a + k): eight terms for all, as data may not decide.
    steps = 1 / a
    for k in range(1, _SHIFT):
        steps = steps + 1 / (a + k)
    z = where(low, a + _SHIFT, a)
    inverse = 1 / z
    square = inverse * inverse
    value = z.log() - 0.5 * inverse - square * _series(square, _DIGAMMA)
    value = where(low, value - steps, value)
    fraction = (x - x.round()) * math.pi
    reflected = where(fraction == 0, math.nan, value - math.pi * (fraction.cos() / fraction.sin()))
    return where(x == 0, -1 / x, where(x < 0, reflected, value))


@in_float
def trigamma(x: Tensor) -> Tensor:
    """The derivative of digamma; inf at 0 and the negative integers.

    By the same recurrence and the derivative of the same series, reflected below 0:
    (pi / sin(pi x))**2 - trigamma(1 - x).
    """
    a = where(x <= 0, 1 - x, x)
    low = a < _SHIFT
    steps = (1 / a).square()
    for k in range(1, _SHIFT):
        steps = steps + (1 / (a + k)).square()
    inverse = 1 / where(low, a + _SHIFT, a)
    square = inverse * inverse
    value = inverse + 0.5 * square + inverse * square * _series(square, _TRIGAMMA)
    value = where(low, value + steps, value)
    fraction = (x - x.round()) * math.pi
    sine = where(fraction == 0, 1, fraction.sin())
    reflected = where(fraction == 0, math.inf, (math.pi / sine).square() - value)
    return where(x <= 0, reflected, value)


def mvlgamma(x: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p, for x > (p - 1) / 2."""
    total = lgamma(x)
    for k in range(1, p):
        total = total + lgamma(x - k / 2)
    return total + (p * (p - 1) / 4 * math.log(math.pi))


# --- zeta -----------------------------------------------------------------------------------------
#
# By the formula of Euler and Maclaurin: nine terms, the integral of the rest and its corrections,
# as in Cephes (bounds: Johansson, "Rigorous high-precision computation of the Hurwitz zeta function
# and its derivatives", 2013).


_TERMS = 9
# B(2k) / (2k)!, of Bernoulli numbers
_CORRECTIONS = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000,
    1 / 74724249600, -3617 / 10670622842880000, 43867 / 5109094217170944000,
    -174611 / 802857662698291200000, 77683 / 14101100039391805440000,
    -236364091 / 1693824136731743669452800000,
)  # fmt: skip
_CORRECTIONS_OF_F32 = 5


def _sum(x: Tensor | int, q: Tensor) -> Tensor:
    """The sum of (q + k)**-x over all k >= 0, for x > 1 and q > 0."""
    # Nine terms one by one, then the integral and the corrections, whose error falls with (q + 9).
    total = q**-x
    for k in range(1, _TERMS):
        total = total + (q + k) ** -x
    end = q + _TERMS
    inverse = 1 / end
    power = end**-x
    total = total + power * (end / (x - 1) + 0.5)
    count = len(_CORRECTIONS) if q.dtype is float64 else _CORRECTIONS_OF_F32
    factor = power * inverse * x
    series = factor * _CORRECTIONS[0]
    for k in range(1, count):
        factor = factor * (x + (2 * k - 1)) * (x + 2 * k) * inverse * inverse
        series = series + factor * _CORRECTIONS[k]
    return where(q == math.inf, 0, total + series)


def _continued(x: Tensor | int, sign: Tensor | int, q: Tensor) -> Tensor:
    """The sum for a whole x and any q; `sign` is (-1)**x. Of the terms below 0 it is a difference
    of two sums.
    """
    below = q < 0
    size = where(below, -q, 1)
    fraction = size - size.floor()
    first = _sum(x, where(below, 1 - fraction, q))
    others = _sum(x, where(below, fraction, 1)) - _sum(x, size + 1)
    return where(below, first + sign * others, first)


def zeta(x: Operand, q: Operand) -> Tensor:
    """The sum of (q + k)**-x over k = 0, 1, ...: within 1e-12 of it in f64, 1e-6 in f32.

    inf at x = 1 and where q is a whole number <= 0; NaN for x < 1, and for other q < 0 where x is
    not whole.
    """
    (a, b), result = unified("zeta", (x, q), floating=True)
    return _zeta(a, b).cast(result)


def _zeta_derivative(g: Tensor, y: Tensor, x: Tensor, q: Tensor) -> tuple[None, Tensor]:
    return None, -g * x * _zeta(x + 1, q)


@differentiated(_zeta_derivative)
def _zeta(x: Tensor, q: Tensor) -> Tensor:
    # Values outside of the domain are replaced before the sum, and named after it: no branch of a
    # Select may be NaN by accident and spoil a gradient.
    order = where(x > 1, x, 2)
    is_whole = x == x.floor()
    zeta = _continued(order, 1 - 2 * (order % 2), q)
    zeta = where((q < 0) & ~is_whole, math.nan, zeta)
    zeta = where((q <= 0) & (q == q.floor()), math.inf, zeta)
    zeta = where((x < 1) | (x != x), math.nan, where(q != q, math.nan, zeta))
    return where(x == 1, math.inf, zeta)


def polygamma(n: int, x: Tensor) -> Tensor:
    """The n-th derivative of digamma, n >= 0."""
    if n < 2:
        return trigamma(x) if n else digamma(x)
    return _polygamma(x, n)


def _polygamma_derivative(g: Tensor, y: Tensor, x: Tensor, n: int) -> Tensor:
    return g * _polygamma(x, n + 1)


@in_float
@differentiated(_polygamma_derivative)
def _polygamma(x: Tensor, n: int) -> Tensor:
    """(-1)**(n + 1) n! zeta(n + 1, x); at its poles inf with the sign (-1)**(n + 1)."""
    sign = 1 if n % 2 else -1
    try:
        factor = float(math.factorial(n))
    except OverflowError:
        factor = math.inf
    is_pole = (x <= 0) & (x == x.floor())
    return where(is_pole, sign * math.inf, sign * factor * _continued(n + 1, sign, x))

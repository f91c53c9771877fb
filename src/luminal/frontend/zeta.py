"""Hurwitz's zeta function and, by it, the derivatives of digamma.

By the formula of Euler and Maclaurin: nine terms, the integral of the rest and its corrections, as
in Cephes (bounds: Johansson, "Rigorous high-precision computation of the Hurwitz zeta function and
its derivatives", 2013).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from luminal.dtypes import float64
from luminal.frontend.binary import unified, where
from luminal.frontend.derivatives import differentiated
from luminal.frontend.gamma import digamma, trigamma
from luminal.frontend.handle import Operand, in_float

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

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
    order = where(x > 1, x, 2)
    is_whole = x == x.floor()
    found = _continued(order, 1 - 2 * (order % 2), q)
    found = where((q < 0) & ~is_whole, math.nan, found)
    found = where((q <= 0) & (q == q.floor()), math.inf, found)
    found = where((x < 1) | (x != x), math.nan, where(q != q, math.nan, found))
    return where(x == 1, math.inf, found)


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

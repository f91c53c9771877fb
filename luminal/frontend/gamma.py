"""The logarithm of the gamma function and its derivative.

Arguments below 8 are moved up by the recurrence, then Stirling's series is taken; negative ones are
reflected. Errors are within 8 ulp of the largest term: near the zeros at 1 and 2 they are absolute.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from luminal.frontend.binary import where
from luminal.frontend.handle import in_float

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

_SHIFT = 8
# Bernoulli numbers B(2k) / (2k (2k - 1)) and B(2k) / 2k
_LGAMMA = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _series(square: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    result = square * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        result = result * square + coefficient
    return result


@in_float
def lgamma(x: Tensor) -> Tensor:
    """log(|gamma(x)|); inf at 0 and the negative integers."""
    a = where(x < 0.5, 1 - x, x)
    product = a
    for k in range(1, _SHIFT):
        product = product * (a + k)
    low = a < _SHIFT
    z = where(low, a + _SHIFT, a)
    inverse = 1 / z
    stirling = (z - 0.5) * z.log() - z + (0.5 * math.log(2 * math.pi))
    value = stirling + inverse * _series(inverse * inverse, _LGAMMA)
    value = where(low, value - where(low, product, 1).log(), value)
    value = where(a == math.inf, math.inf, value)
    sine = abs(_sine_of_pi(x))
    reflected = math.log(math.pi) - sine.log() - value
    reflected = where((sine == 0) | (x == -math.inf), math.inf, reflected)
    return where(x < 0.5, reflected, value)


def _sine_of_pi(x: Tensor) -> Tensor:
    """sin(pi x), up to its sign; exactly 0 at integers."""
    return ((x - x.round()) * math.pi).sin()


@in_float
def digamma(x: Tensor) -> Tensor:
    """The derivative of lgamma; NaN at the negative integers, -inf at +0, inf at -0."""
    a = where(x <= 0, 1 - x, x)
    low = a < _SHIFT
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


def mvlgamma(x: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p, for x > (p - 1) / 2."""
    total = lgamma(x)
    for k in range(1, p):
        total = total + lgamma(x - k / 2)
    return total + (p * (p - 1) / 4 * math.log(math.pi))

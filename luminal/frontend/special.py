"""tanh and erf from primitives: polynomials near 0, exponentials further out.

The coefficients are weighted least-squares fits at Chebyshev points, made with 50-digit arithmetic
and then rounded; the error of each fit is at most a tenth of its type's last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from luminal.dtypes import float32, float64
from luminal.frontend.binary import where
from luminal.frontend.handle import in_float

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

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
# erf(x) = x * p(x**2) for |x| < 1
_ERF = {
    float32: (
        1.12837917, -0.376126269, 0.112835975, -0.0268543288, 0.00518931194,
        -0.000801885499, 7.88249711e-05,
    ),
    float64: (
        1.1283791670955126, -0.3761263890318375, 0.11283791670954882, -0.026866170645077334,
        0.005223977624823223, -0.0008548326981129666, 0.00012055331122299266,
        -1.4925595519506043e-05, 1.6461004480962034e-06, -1.6350354461959655e-07,
        1.4660051998394848e-08, -1.1373902296430911e-09, 5.958930743134941e-11,
    ),
}
# erf(x) = 1 - exp(-p((x - 1) / span)) for 1 <= x <= 1 + span, where it rounds to 1
_LOG_ERFC = {
    float32: (
        1.84960552, 7.91690057, 7.58806018, 1.12058244, -0.801515494, 0.444601473,
        -0.135996196,
    ),
    float64: (
        1.8496055099332482, 13.19483757117394, 21.077681408967162, 5.195137255198974,
        -6.271140857455316, 6.180945472174926, -3.7081626233789904, -2.052976128791602,
        10.609208908580058, -18.768764147504143, 20.1227240295406, -7.008707133065403,
        -23.71506992314361, 63.2940404322173, -90.63344929044015, 86.96233086114829,
        -55.848398046483716, 21.826845145858158, -3.93114767674846,
    ),
}
# fmt: on
_SPAN = {float32: 3.0, float64: 5.0}


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """`c[0] + c[1] * x + c[2] * x**2 + ...` by Horner's rule."""
    result = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        result = result * x + coefficient
    return result


def _odd(x: Tensor, magnitude: Tensor) -> Tensor:
    """`magnitude`, negated where x is negative."""
    return where(x < 0, -magnitude, magnitude)


@in_float
def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent, within 4 ulp everywhere."""
    square = x * x
    near = x + x * square * _polynomial(square, _TANH[x.dtype])
    decay = (abs(x) * -2).exp()
    far = _odd(x, (1 - decay) / (1 + decay))
    return where(abs(x) < 0.625, near, far)


@in_float
def erf(x: Tensor) -> Tensor:
    """The error function, within 4 ulp everywhere."""
    near = x * _polynomial(x * x, _ERF[x.dtype])
    position = (abs(x).minimum(1 + _SPAN[x.dtype]) - 1) * (1 / _SPAN[x.dtype])
    far = _odd(x, 1 - (-_polynomial(position, _LOG_ERFC[x.dtype])).exp())
    return where(abs(x) < 1, near, far)

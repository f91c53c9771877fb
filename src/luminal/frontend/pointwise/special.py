"""The error function and its relatives, and orthogonal polynomials of a degree n."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from luminal.base.dtypes import float32, float64
from luminal.base.errors import DTypeError
from luminal.frontend.handle import Operand, in_float, is_tensor
from luminal.frontend.pointwise.binary import unified, where
from luminal.frontend.pointwise.derivatives import differentiated
from luminal.frontend.pointwise.trigonometric import acos, acosh, cosh, sinh
from luminal.frontend.pointwise.unary import odd, polynomial

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor


# fmt: off
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
# erfc(x) = exp(-x**2) / (1 + 2 * x) * p((x - 4) / (x + 4)) for x >= 1/2, the form of Shepherd and
# Laframboise (Mathematics of Computation 36, 1981)
_SCALED_ERFC = {
    float32: (
        1.2329952, -0.13962112, 0.015378715, 0.068097435, -0.10103224, 0.093728505, -0.06634699,
        0.037184466, -0.016196864, 0.0050100805, -0.0007098791, -0.00020542282, 9.7337004e-05,
    ),
    float64: (
        1.2329951186255526, -0.1396211168405625, 0.01537965210261391, 0.0680970542546919,
        -0.10103906603608477, 0.09373283499834023, -0.06633036581599512, 0.037167515538338136,
        -0.016197734022301735, 0.005031969962351909, -0.000757773486282935,
        -0.00019925655289474318, 0.00015062234376784285, -2.439996634808842e-05,
        -1.1223333728921301e-05, 5.712210493688951e-06, 2.9488535458206627e-07,
        -8.305681828246341e-07, 7.558831337614483e-08, 1.1661094169782892e-07,
        -2.1160476224279632e-08, -1.880419346620653e-08, 4.8743613225780236e-09,
        2.719027517731463e-09, -1.031584764318871e-09,
    ),
}
# ndtri(1/2 + x) = x * p(x**2) for |x| < 1/4
_NDTRI = {
    float32: (
        2.5066283, 2.6249595, 5.76716, 16.046663, 35.661873, 294.59943,
    ),
    float64: (
        2.5066282746310007, 2.624934990953043, 5.772533539228833, 15.667608748130043,
        47.0358263331177, 149.8256378274573, 496.5579291873633, 1676.9291544925168,
        6272.881269130059, 12429.774397060117, 188306.90168261368, -691724.6146206255,
        5102284.952206074,
    ),
}
# fmt: on
_SPAN = {float32: 3.0, float64: 5.0}
_SLOPE = 2 / math.sqrt(math.pi)  # of erf at 0


@in_float
@differentiated(lambda g, y, x: g * _SLOPE * (-x * x).exp())
def erf(x: Tensor) -> Tensor:
    """The error function, within 3 ulp everywhere.

    `x * p(x**2)` for |x| < 1, `1 - exp(-p(|x|))` with x's sign beyond.
    """
    near = x * polynomial(x * x, _ERF)
    # Beyond the span erf is 1 to the last digit: clamping is all that the tail needs, and the
    # polynomial is never read outside of where it was fitted.
    position = (abs(x).minimum(1 + _SPAN[x.dtype]) - 1) * (1 / _SPAN[x.dtype])
    far = 1 - (-polynomial(position, _LOG_ERFC)).exp()
    # not by the sign bit: a rounding difference in x would leave no error bound on bits
    return where(abs(x) < 1, near, where(x < 0, -far, far))


@in_float
@differentiated(lambda g, y, x: g * -_SLOPE * (-x * x).exp())
def erfc(x: Tensor) -> Tensor:
    """1 - erf(x), without its cancellation: within 5 ulp, also where it is subnormal.

    `1 - x * p(x**2)` for |x| < 1/2, `exp(-x**2) * p / (1 + 2x)` above, 2 minus that below.
    """
    a = abs(x).minimum(28)  # where it is 0, also in f64
    near = 1 - x * polynomial(x * x, _ERF)
    # exp(-x*x) with a rounded square is wrong by x*x ulp, hundreds of them; see _exp_square.
    tail = _exp_square(a, -1) * _scaled_erfc(a)
    return where(a < 0.5, near, where(x < 0, 2 - tail, tail))


@in_float
@differentiated(lambda g, y, x: g * (2 * x * y - _SLOPE))
def erfcx(x: Tensor) -> Tensor:
    """exp(x**2) * erfc(x), within 8 ulp: a polynomial for x >= 1/2."""
    tail = where(x == math.inf, 0, _scaled_erfc(abs(x)))
    growth = _exp_square(abs(x).minimum(28), 1)  # where it is infinite, also in f64
    return where(x >= 0.5, tail, growth * erfc(x))


def _scaled_erfc(x: Tensor) -> Tensor:
    """exp(x**2) * erfc(x) for x >= 1/2."""
    return polynomial((x - 4) / (x + 4), _SCALED_ERFC) * 0.5 / (0.5 + x)


def _exp_square(x: Tensor, sign: int) -> Tensor:
    """exp(sign * x**2) for 0 <= x <= 28: the square of x with half of its bits is exact, and what
    it lacks is a small factor.
    """
    grid = 2.0**7 if x.dtype is float32 else 2.0**20
    # x**2 = high**2 + (x - high)(x + high): the first square is exact, as high has half of the
    # bits.
    high = (x * grid).floor() * (1 / grid)
    return (sign * high * high).exp() * (sign * (x - high) * (x + high)).exp()


@in_float
@differentiated(lambda g, y, x: g / _SLOPE * (y * y).exp())
def erfinv(x: Tensor) -> Tensor:
    """The inverse of erf, within 5 ulp; infinite at 1 and -1, NaN beyond.

    Two steps of Halley's method on erf below 1/2, on erfc above, from the formula of S. Winitzki.
    """
    a = abs(x)
    rest = 1 - a  # exact above 1/2
    logarithm = (rest * (1 + a)).log()
    # Winitzki's formula is right to 2e-3; each of Halley's steps triples the number of right
    # digits.
    base = 2 / (math.pi * 0.147) + logarithm * 0.5
    far = ((base * base - logarithm / 0.147).sqrt() - base).sqrt()
    y = where(a < 0.5, a * (1 + a * a * (math.pi / 12)) * (math.sqrt(math.pi) / 2), far)
    for _ in range(2):
        excess = where(a < 0.5, erf(y) - a, rest - erfc(y))
        step = excess * _exp_square(y.minimum(28), 1) * (math.sqrt(math.pi) / 2)
        y = y - step / (1 + y * step)
    return odd(where(a == 1, math.inf, y), x)


@in_float
def ndtr(x: Tensor) -> Tensor:
    """The normal distribution's probability below x: erfc(-x / sqrt(2)) / 2.

    Far below 0 the rounding of x / sqrt(2) counts x**2 times.
    """
    return erfc(x * -math.sqrt(0.5)) * 0.5


@in_float
@differentiated(lambda g, y, p: g * math.sqrt(2 * math.pi) * (y * y * 0.5).exp())
def ndtri(p: Tensor) -> Tensor:
    """The inverse of ndtr, within 4 ulp; infinite at 0 and 1, NaN beyond.

    A polynomial near 1/2; in the tails Halley's steps on the logarithm of the probability, from
    formula 26.2.23 of Abramowitz and Stegun.
    """
    middle = p - 0.5
    near = middle * polynomial(middle * middle, _NDTRI)
    rest = where(p < 0.5, p, 1 - p)  # exact where it is used
    logarithm = rest.log()
    # The formula of the book is right to 4.5e-4; one step of Halley's brings f32 there, two f64.
    t = (logarithm * -2).sqrt()
    above = (0.010328 * t + 0.802853) * t + 2.515517
    y = t - above / (((0.001308 * t + 0.189269) * t + 1.432788) * t + 1)
    for _ in range(1 if p.dtype is float32 else 2):
        scaled = erfcx(y * math.sqrt(0.5))
        hazard = math.sqrt(2 / math.pi) / scaled
        excess = (scaled * 0.5).log() - y * y * 0.5 - logarithm
        y = y + excess / (hazard + excess * (hazard - y) * 0.5)
    far = where(rest == 0, math.inf, y)
    return where(abs(middle) < 0.25, near, where(p < 0.5, -far, far))


@in_float
@differentiated(lambda g, y, x: g * math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5)))
def log_ndtr(x: Tensor) -> Tensor:
    """log(ndtr(x)), without its underflow: through erfcx below -1."""
    t = x * math.sqrt(0.5)
    return where(x < -1, (erfcx(-t) * 0.5).log() - t * t, (-0.5 * erfc(t)).log1p())


@in_float
@differentiated(lambda g, y, x: g * -(1 + x.log()))
def entr(x: Tensor) -> Tensor:
    """-x * log(x), 0 at 0, -inf below."""
    return where(x > 0, -x * x.log(), where(x == 0, 0, where(x < 0, -math.inf, x)))


# --- orthogonal -----------------------------------------------------------------------------------
#
# Of an int they follow their recurrence. Chebyshev's are, of a tensor of degrees, cosines and sines
# of multiples of an angle, with cosh and sinh outside of -1 .. 1.


MAX_DEGREE = 512  # steps of a recurrence, which are recorded one by one
_BY_ANGLE = 32  # the degree from which Chebyshev's recurrence would lose more digits than cosines

Step = Callable[["Tensor", "Tensor", "Tensor", int], "Tensor"]
"""From x, the polynomials of degrees k and k - 1, and k: that of degree k + 1."""


def _by_recurrence(name: str, x: Tensor, n: Operand, first: Callable[[Tensor], Tensor],
                   step: Step) -> Tensor:  # fmt: skip
    if is_tensor(n):
        raise DTypeError(f"{name}: n is a Tensor; its degree is an int, as in {name}(x, 3)")
    if n > MAX_DEGREE:  # type: ignore[operator]
        raise DTypeError(f"{name}: n is {n}; the degree is at most {MAX_DEGREE}")
    return _unrolled(x, int(n), first, step)  # type: ignore[arg-type]


@in_float
def _unrolled(x: Tensor, n: int, first: Callable[[Tensor], Tensor], step: Step) -> Tensor:
    if n <= 0:
        return x.graph.full(x.extents, float(n == 0), x.dtype)
    before, polynomial = x.graph.full(x.extents, 1.0, x.dtype), first(x)
    for k in range(1, n):
        before, polynomial = polynomial, step(x, polynomial, before, k)
    return polynomial


def _chebyshev(name: str, x: Operand, n: Operand, first: Callable[[Tensor], Tensor],
               by_angle: Callable[[Tensor, Tensor], Tensor]) -> Tensor:  # fmt: skip
    if is_tensor(x) and not is_tensor(n) and n < _BY_ANGLE:  # type: ignore[operator]
        return _unrolled(x, int(n), first, _chebyshev_step)  # type: ignore[arg-type]
    (a, b), result = unified(name, (x, n), floating=True)
    # In f64 whatever the dtype: n * acos(x) has the error of acos n times over.
    degree = b.trunc()
    value = by_angle(a.cast(float64), degree.cast(float64))
    return where(degree < 0, 0, where(degree == 0, 1, value)).cast(result)


def _chebyshev_step(x: Tensor, value: Tensor, before: Tensor, k: int) -> Tensor:
    return 2 * x * value - before


def _parity(n: Tensor) -> Tensor:
    """The sign of (-1)**n: 1 where n is even, -1 where it is odd."""
    return 1 - 2 * (n % 2)


def _angles(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where |x| <= 1; the angle there; the hyperbolic one of |x| elsewhere."""
    # The other branch gets an argument within its domain, as NaN of a branch not taken would still
    # reach gradients.
    inside = abs(x) <= 1
    return inside, acos(where(inside, x, 0)), acosh(where(inside, 2, abs(x)))


def _t(x: Tensor, n: Tensor) -> Tensor:
    inside, angle, size = _angles(x)
    far = cosh(n * size) * where(x < 0, _parity(n), 1)
    return where(inside, (n * angle).cos(), far)


def _u(x: Tensor, n: Tensor) -> Tensor:
    inside, angle, size = _angles(x)
    sine = angle.sin()
    near = ((n + 1) * angle).sin() / where(abs(x) == 1, 1, sine)
    value = where(inside, near, sinh((n + 1) * size) / sinh(size))
    value = where(abs(x) == 1, n + 1, value)
    return where(x <= -1, _parity(n) * value, value)


def _v(x: Tensor, n: Tensor) -> Tensor:
    inside, angle, size = _angles(x)
    half = n + 0.5
    near = where(x == -1, _parity(n) * (2 * n + 1), (half * angle).cos() / (angle * 0.5).cos())
    above = cosh(half * size) / cosh(size * 0.5)
    below = _parity(n) * sinh(half * size) / sinh(size * 0.5)
    return where(inside, near, where(x < 0, below, above))


def chebyshev_polynomial_t(x: Operand, n: Operand) -> Tensor:
    """Chebyshev's polynomial of the first kind: cos(n acos(x)); 0 for n < 0."""
    return _chebyshev("chebyshev_polynomial_t", x, n, lambda x: x, _t)


def chebyshev_polynomial_u(x: Operand, n: Operand) -> Tensor:
    """The second kind: sin((n + 1) acos(x)) / sin(acos(x))."""
    return _chebyshev("chebyshev_polynomial_u", x, n, lambda x: 2 * x, _u)


def chebyshev_polynomial_v(x: Operand, n: Operand) -> Tensor:
    """The third kind: cos((n + 1/2) acos(x)) / cos(acos(x) / 2)."""
    return _chebyshev("chebyshev_polynomial_v", x, n, lambda x: 2 * x - 1, _v)


def chebyshev_polynomial_w(x: Operand, n: Operand) -> Tensor:
    """The fourth kind: sin((n + 1/2) acos(x)) / sin(acos(x) / 2)."""
    return _chebyshev(
        "chebyshev_polynomial_w", x, n, lambda x: 2 * x + 1, lambda x, n: _parity(n) * _v(-x, n)
    )


def _shifted(function: Callable[[Operand, Operand], Tensor]) -> Callable[..., Tensor]:
    def shifted(x: Operand, n: Operand) -> Tensor:
        return function(2.0 * x - 1, n)  # type: ignore[operator]

    shifted.__name__ = f"shifted_{function.__name__}"
    shifted.__doc__ = f"{function.__name__} at 2 * x - 1."
    return shifted


shifted_chebyshev_polynomial_t = _shifted(chebyshev_polynomial_t)
shifted_chebyshev_polynomial_u = _shifted(chebyshev_polynomial_u)
shifted_chebyshev_polynomial_v = _shifted(chebyshev_polynomial_v)
shifted_chebyshev_polynomial_w = _shifted(chebyshev_polynomial_w)


def hermite_polynomial_h(x: Tensor, n: int) -> Tensor:
    """The physicists' polynomial of Hermite: H(k + 1) = 2 x H(k) - 2 k H(k - 1)."""
    return _by_recurrence(
        "hermite_polynomial_h", x, n, lambda x: 2 * x, lambda x, p, q, k: 2 * x * p - (2 * k) * q
    )


def hermite_polynomial_he(x: Tensor, n: int) -> Tensor:
    """The probabilists': He(k + 1) = x He(k) - k He(k - 1)."""
    return _by_recurrence(
        "hermite_polynomial_he", x, n, lambda x: x, lambda x, p, q, k: x * p - k * q
    )


def laguerre_polynomial_l(x: Tensor, n: int) -> Tensor:
    """Laguerre's: (k + 1) L(k + 1) = (2 k + 1 - x) L(k) - k L(k - 1)."""
    return _by_recurrence(
        "laguerre_polynomial_l", x, n, lambda x: 1 - x,
        lambda x, p, q, k: ((2 * k + 1 - x) * p - k * q) / (k + 1),
    )  # fmt: skip


def legendre_polynomial_p(x: Tensor, n: int) -> Tensor:
    """Legendre's: (k + 1) P(k + 1) = (2 k + 1) x P(k) - k P(k - 1)."""
    return _by_recurrence(
        "legendre_polynomial_p", x, n, lambda x: x,
        lambda x, p, q, k: ((2 * k + 1) * x * p - k * q) / (k + 1),
    )  # fmt: skip

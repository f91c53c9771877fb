"""Orthogonal polynomials of a degree n: an int for all elements, or one for each.

Of an int they follow their recurrence. Chebyshev's are, of a tensor of degrees, cosines and sines
of multiples of an angle, with cosh and sinh outside of -1 .. 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from luminal.dtypes import float64
from luminal.errors import DTypeError
from luminal.frontend.binary import unified, where
from luminal.frontend.handle import Operand, in_float, is_tensor
from luminal.frontend.hyperbolic import acosh, cosh, sinh
from luminal.frontend.trigonometric import acos

if TYPE_CHECKING:
    from luminal.frontend.tensor import Tensor

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
    before, found = x.graph.full(x.extents, 1.0, x.dtype), first(x)
    for k in range(1, n):
        before, found = found, step(x, found, before, k)
    return found


def _chebyshev(name: str, x: Operand, n: Operand, first: Callable[[Tensor], Tensor],
               by_angle: Callable[[Tensor, Tensor], Tensor]) -> Tensor:  # fmt: skip
    if is_tensor(x) and not is_tensor(n) and n < _BY_ANGLE:  # type: ignore[operator]
        return _unrolled(x, int(n), first, _chebyshev_step)  # type: ignore[arg-type]
    (a, b), result = unified(name, (x, n), floating=True)
    degree = b.trunc()
    found = by_angle(a.cast(float64), degree.cast(float64))
    return where(degree < 0, 0, where(degree == 0, 1, found)).cast(result)


def _chebyshev_step(x: Tensor, found: Tensor, before: Tensor, k: int) -> Tensor:
    return 2 * x * found - before


def _parity(n: Tensor) -> Tensor:
    """(-1)**n."""
    return 1 - 2 * (n % 2)


def _angles(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where |x| <= 1; the angle there; the hyperbolic one of |x| elsewhere."""
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
    found = where(inside, near, sinh((n + 1) * size) / sinh(size))
    found = where(abs(x) == 1, n + 1, found)
    return where(x <= -1, _parity(n) * found, found)


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
    """Of the second kind: sin((n + 1) acos(x)) / sin(acos(x))."""
    return _chebyshev("chebyshev_polynomial_u", x, n, lambda x: 2 * x, _u)


def chebyshev_polynomial_v(x: Operand, n: Operand) -> Tensor:
    """Of the third kind: cos((n + 1/2) acos(x)) / cos(acos(x) / 2)."""
    return _chebyshev("chebyshev_polynomial_v", x, n, lambda x: 2 * x - 1, _v)


def chebyshev_polynomial_w(x: Operand, n: Operand) -> Tensor:
    """Of the fourth kind: sin((n + 1/2) acos(x)) / sin(acos(x) / 2)."""
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

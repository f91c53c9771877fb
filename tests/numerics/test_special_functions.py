"""Bessel functions, zeta and its kin, orthogonal polynomials: on both backends, against SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch

import luminal as lm
from luminal.base.errors import DTypeError
from tests.close import close, close_each
from tests.long_share import mostly_long
from tests.numerics.recording import run

Array = np.ndarray[Any, Any]
special: Any = lm.special
theirs: Any = scipy.special
INF, NAN = math.inf, math.nan
rng = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("each_backend")


def _both_signs(end: float) -> Array:
    """Of everyday size, small ones, and of all up to the end."""
    far = np.exp(rng.uniform(-9, math.log(end), 150))
    return np.concatenate([rng.uniform(-20, 20, 250), far, -far])


# name: (SciPy's name, arguments, epsilons of the larger of 1 and the value)
BESSEL: dict[str, tuple[str, Array, float]] = {
    "bessel_j0": ("j0", _both_signs(1e5), 2), "bessel_j1": ("j1", _both_signs(1e5), 2),
    "bessel_y0": ("y0", abs(_both_signs(1e5)), 4), "bessel_y1": ("y1", abs(_both_signs(1e5)), 4),
    "i0": ("i0", _both_signs(85), 6), "i1": ("i1", _both_signs(85), 7),
    "i0e": ("i0e", _both_signs(1e6), 4), "i1e": ("i1e", _both_signs(1e6), 5),
    "modified_bessel_k0": ("k0", abs(_both_signs(80)), 6),
    "modified_bessel_k1": ("k1", abs(_both_signs(80)), 6),
    "scaled_modified_bessel_k0": ("k0e", abs(_both_signs(1e6)), 6),
    "scaled_modified_bessel_k1": ("k1e", abs(_both_signs(1e6)), 6),
}  # fmt: skip
WITH_ZEROS = ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")


@pytest.mark.parametrize("dtype", mostly_long([np.float32, np.float64], 1))
def test_bessel_functions(dtype: Any) -> None:
    eps = np.finfo(dtype).eps
    given = [x.astype(dtype) for _, x, _ in BESSEL.values()]
    found = run(
        lambda *xs: [getattr(special, n)(x) for n, x in zip(BESSEL, xs, strict=True)], *given
    )
    for name, x, y in zip(BESSEL, given, found, strict=True):
        other, _, count = BESSEL[name]
        # SciPy rounds x - pi / 4: its own error grows with x
        own = 1 + (abs(x) if dtype is np.float64 and name in WITH_ZEROS else 0)
        wanted = getattr(theirs, other)(x.astype(np.float64))
        size = np.maximum(abs(wanted), 1 if name in WITH_ZEROS else np.finfo(dtype).tiny)
        error = abs(y - wanted) / (size * (count + own - 1))
        worst = int(np.argmax(error))
        assert error[worst] < 1.5 * eps, f"{name}({x[worst]!r}): {y[worst]!r}, {wanted[worst]!r}"


def test_near_their_zeros_digits_stay() -> None:
    """Of J0 and J1, the zeros that are factors: below 5."""
    for name, zero in (("j0", 2.4048255), ("j1", 3.8317059)):
        x = (zero + np.array([1e-6, -1e-4, 1e-2])).astype(np.float32)
        found = run(getattr(special, f"bessel_{name}"), x)
        close_each(found, getattr(theirs, name)(x.astype("f8")))
    # of f64 SciPy loses them; these are of 40 digits
    x = 2.404825557695773 + np.array([1e-6, -1e-4])
    wanted = [-5.1914738948436141021e-7, 5.191582905941005851e-5]
    close_each(run(special.bessel_j0, x), wanted)


ENDS = np.array([0.0, -0.0, INF, -INF, NAN, -1.5, 1e-40, 90, -90, 1], np.float32)
AT_ENDS: dict[str, list[float]] = {
    "bessel_j0": [1, 1, NAN, NAN, NAN], "bessel_y0": [-INF, -INF, NAN, NAN, NAN, NAN],
    "bessel_y1": [-INF, -INF, NAN, NAN, NAN, NAN, -INF],
    "i0": [1, 1, INF, INF, NAN], "i1": [0, -0.0, INF, -INF, NAN],
    "i0e": [1, 1, 0, 0, NAN], "i1e": [0, -0.0, 0, -0.0, NAN],
    "modified_bessel_k0": [INF, INF, 0, NAN, NAN, NAN],
    "modified_bessel_k1": [INF, INF, 0, NAN, NAN, NAN, INF, 0, NAN],
    "spherical_bessel_j0": [1, 1, 0, 0, NAN],
    "ndtri": [-INF, -INF, NAN, NAN, NAN, NAN, -13.310922, NAN, NAN, INF],
}  # fmt: skip


def test_special_values() -> None:
    found = run(lambda x: [getattr(special, name)(x) for name in AT_ENDS], ENDS)
    for (name, wanted), y in zip(AT_ENDS.items(), found, strict=True):
        # 8 ulp of float32, and of what falls below 1e-30 nothing is asked
        np.testing.assert_allclose(y[: len(wanted)], wanted, 1e-6, 1e-30, err_msg=name)
    grown = run(lambda x: (special.i0(x), special.i1(x)), ENDS)  # exp(90) alone is inf
    for y, name in zip(grown, ("i0", "i1"), strict=True):
        close_each(y[7:9], getattr(theirs, name)(ENDS[7:9].astype("f8")), ulp=8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ndtri(dtype: Any) -> None:
    p = np.concatenate([rng.uniform(0, 1, 400), np.exp(rng.uniform(-80, -1, 200))]).astype(dtype)
    found = run(special.ndtri, p)
    np.testing.assert_allclose(found, theirs.ndtri(p.astype("f8")), 6 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", mostly_long([np.float64, np.float32], 1))
def test_zeta(dtype: Any) -> None:
    x = np.concatenate([rng.uniform(1.01, 6, 200), [2, 2, 3, 1, 0.5, NAN]]).astype(dtype)
    q = np.concatenate([np.exp(rng.uniform(-3, 4, 200)), [-1.5, -2, -1.25, 2, 2, 2]]).astype(dtype)
    found = run(special.zeta, x, q)
    wide = torch.from_numpy(x).double(), torch.from_numpy(q).double()
    bound = 8 * np.finfo(np.float32).eps if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(found, torch.special.zeta(*wide).numpy(), bound)


@pytest.mark.parametrize("n", mostly_long([0, 1, 7, 2, 3], 3))
def test_polygamma(n: int) -> None:
    x = np.concatenate([rng.uniform(-5, 0, 200), np.exp(rng.uniform(-3, 5, 200))])
    x = x[abs(x - x.round()) > 0.02]
    found = run(lambda t: special.polygamma(n, t), np.append(x, [0, -1, -2]))
    wanted = torch.polygamma(n, torch.from_numpy(x)).numpy()
    # recurrences in float64: nine digits are left where terms cancel
    np.testing.assert_allclose(found[:-3], wanted, 1e-9, 1e-9)
    if n > 1:
        assert set(found[-3:]) == {-INF if n % 2 == 0 else INF}


POLYNOMIALS = {
    "chebyshev_polynomial_t": theirs.eval_chebyt, "chebyshev_polynomial_u": theirs.eval_chebyu,
    "shifted_chebyshev_polynomial_t": theirs.eval_sh_chebyt,
    "shifted_chebyshev_polynomial_u": theirs.eval_sh_chebyu,
    "hermite_polynomial_h": theirs.eval_hermite, "hermite_polynomial_he": theirs.eval_hermitenorm,
    "laguerre_polynomial_l": theirs.eval_laguerre, "legendre_polynomial_p": theirs.eval_legendre,
}  # fmt: skip
OF_ANGLES = [name for name in dir(special) if "chebyshev" in name]


@pytest.mark.parametrize("n", [-1, 0, 1, 2, 5, 40])
def test_polynomials_of_a_degree(n: int) -> None:
    x = np.append(rng.uniform(-1.5, 1.5, 50), [-1, 1, 0])
    found = run(lambda t: [getattr(special, name)(t, n) for name in POLYNOMIALS], x)
    for (name, function), y in zip(POLYNOMIALS.items(), found, strict=True):
        wanted = function(n, x) if n >= 0 else 0 * x
        close(y, wanted, ulp=256, err_msg=name)


def test_degrees_in_a_tensor() -> None:
    x = np.append(rng.uniform(-2, 2, 60), [-1, 1, 0, -1, 1]).astype(np.float32)
    n = np.append(rng.integers(-1, 12, 60), [3, 3, 3, 4, 4]).astype(np.int32)
    found = run(lambda a, b: [getattr(special, name)(a, b) for name in OF_ANGLES], x, n)
    assert len(OF_ANGLES) == 8
    for name, y in zip(OF_ANGLES, found, strict=True):
        function = getattr(torch.special, name)
        wanted = function(torch.from_numpy(x).double(), torch.from_numpy(n).double()).numpy()
        # angles up to n times a quarter turn in float32: 25 ulp of the largest
        np.testing.assert_allclose(y, wanted, 3e-6, 1e-5, err_msg=name)
    with pytest.raises(DTypeError, match=r"n is a Tensor; its degree is an int, as in legendre"):
        special.legendre_polynomial_p(*map(lm.constant, (x, n)))
    with pytest.raises(DTypeError, match="n is 513; the degree is at most 512"):
        special.hermite_polynomial_h(lm.constant(x), 513)


DERIVATIVES: dict[str, Callable[[Array], Array]] = {
    "bessel_j0": lambda x: -theirs.j1(x), "bessel_j1": lambda x: theirs.jvp(1, x),
    "bessel_y0": lambda x: -theirs.y1(x), "bessel_y1": lambda x: theirs.yvp(1, x),
    "i0": theirs.i1, "i1": lambda x: theirs.ivp(1, x),
    "i0e": lambda x: theirs.i1e(x) - theirs.i0e(x),
    "i1e": lambda x: (theirs.ivp(1, x) - theirs.i1(x)) * np.exp(-x),
    "modified_bessel_k0": lambda x: -theirs.k1(x),
    "modified_bessel_k1": lambda x: theirs.kvp(1, x),
    "scaled_modified_bessel_k0": lambda x: theirs.k0e(x) - theirs.k1e(x),
    "scaled_modified_bessel_k1": lambda x: (theirs.kvp(1, x) + theirs.k1(x)) * np.exp(x),
    "spherical_bessel_j0": lambda x: theirs.spherical_jn(0, x, derivative=True),
}  # fmt: skip


def test_derivatives() -> None:
    x = np.concatenate([rng.uniform(0.1, 12, 60)])

    def slopes(t: lm.Tensor) -> list[lm.Tensor]:
        found = []
        for name in DERIVATIVES:
            y, pull = lm.vjp(getattr(special, name), t)
            found.append(pull(lm.ones_like(y))[0])
        return found

    for (name, exact), y in zip(DERIVATIVES.items(), run(slopes, x), strict=True):
        # derivatives by formulas that divide and subtract: eleven digits of float64
        np.testing.assert_allclose(y, exact(x), 1e-11, 1e-12, err_msg=name)

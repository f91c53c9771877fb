"""Pointwise math over its whole range, on both backends, against higher precision and NumPy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special
import torch

import luminal as lm
from luminal.base.errors import DTypeError
from tests.close import close
from tests.long_share import mostly_long
from tests.numerics.recording import run

Array = np.ndarray[Any, Any]
Wide = np.longdouble
BF16 = np.dtype(ml_dtypes.bfloat16)
INF, NAN = math.inf, math.nan
rng = np.random.default_rng(0)
pytestmark = pytest.mark.usefixtures("each_backend")


# --- accuracy -------------------------------------------------------------------------------------


def _cbrt(x: Array) -> Array:
    root = np.cbrt(x.astype(np.float64)).astype(Wide)
    return np.where(x == 0, x, root - (root - x / (root * root)) / 3)


def _logit(x: Array) -> Array:
    return np.where(x < 0.25, np.log(x / (1 - x)), np.log1p((2 * x - 1) / (1 - x)))


# name: (the function in long double, the bound in ulp that the docstring gives)
PRECISE: dict[str, tuple[Callable[[Array], Array], float]] = {
    "exp": (np.exp, 1.1), "exp2": (np.exp2, 1.1), "log": (np.log, 1.1), "log2": (np.log2, 1.2),
    "expm1": (np.expm1, 3), "log1p": (np.log1p, 3), "log10": (np.log10, 3),
    "sqrt": (np.sqrt, 0.5), "rsqrt": (lambda x: 1 / np.sqrt(x), 2), "cbrt": (_cbrt, 1),
    "reciprocal": (lambda x: 1 / x, 0.5), "tan": (np.tan, 4), "asin": (np.arcsin, 3),
    "acos": (np.arccos, 3), "atan": (np.arctan, 3), "sinh": (np.sinh, 4), "cosh": (np.cosh, 3),
    "tanh": (np.tanh, 2), "asinh": (np.arcsinh, 3), "acosh": (np.arccosh, 3),
    "atanh": (np.arctanh, 3), "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 3), "logit": (_logit, 4),
}  # fmt: skip


def _every_magnitude(dtype: Any, count: int) -> Array:
    """Random bits, and numbers of everyday size."""
    size = np.dtype(dtype).itemsize
    bits = rng.integers(0, 256, count * size, dtype=np.uint8).view(dtype)
    parts = [bits, *(rng.uniform(-width, width, count) for width in (1, 20, 800))]
    x = np.concatenate([part.astype(dtype) for part in parts])
    return x[np.isfinite(x)]


def _assert_within(name: str, found: Array, exact: Array, x: Array, bound: float) -> None:
    """Equal within `bound` ulp and an ulp of the least normal number; NaN and inf by position."""
    dtype = found.dtype
    expected = exact.astype(dtype)
    special = ~np.isfinite(expected)
    np.testing.assert_array_equal(found[special], expected[special], name)
    tiny = np.finfo(dtype).tiny
    spacing = np.spacing(np.maximum(np.abs(expected), tiny)).astype(Wide)
    apart = np.where(special, 0, np.abs(found.astype(Wide) - exact) / spacing)
    below = np.abs(exact) < tiny  # sigmoid says 0 there
    apart = np.where(below & (np.abs(found) <= tiny), 0, apart)
    worst = int(np.argmax(apart))
    assert apart[worst] <= bound, f"{name}({x[worst]!r}) is {apart[worst]:.2f} ulp off"


@pytest.mark.parametrize("dtype", mostly_long([np.float32, np.float64], 1))
def test_elementary_functions_are_within_their_bounds(dtype: Any) -> None:
    x = _every_magnitude(dtype, 1500)
    small = np.where(np.abs(x) > 1000, np.fmod(x, 1000).astype(dtype), x)  # for tan
    names = [name for name in PRECISE if name != "tan"]
    found = run(lambda a, b: [b.tan()] + [getattr(a, name)() for name in names], x, small)
    with np.errstate(all="ignore"):
        for name, result in zip(["tan", *names], found, strict=True):
            argument = small if name == "tan" else x
            exact, bound = PRECISE[name]
            _assert_within(name, result, exact(argument.astype(Wide)), argument, bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_of_halves(dtype: Any) -> None:
    """Within 2 ulp, where the general power of f64 is 800 off; -0, -inf and negatives as in C."""
    x = np.concatenate([_every_magnitude(dtype, 1500), np.array([0, -0.0, INF, -INF, NAN], dtype)])
    exponents = (-0.5, 1.5, 2.5)
    found = run(lambda t: [t**exponent for exponent in exponents], x)
    with np.errstate(all="ignore"):
        for exponent, result in zip(exponents, found, strict=True):
            exact = x.astype(Wide) ** Wide(exponent)
            _assert_within(f"pow {exponent}", result, exact, x, 2)
            assert not np.signbit(result[x == 0]).any()


def test_sin_and_cos_up_to_a_million_and_beyond() -> None:
    x = np.concatenate([rng.uniform(-1e6, 1e6, 3000), [1e6, 1e10, 3e38, 0, -0.0]]).astype("f4")
    for name, found in zip(("sin", "cos"), run(lambda t: (t.sin(), t.cos()), x), strict=True):
        exact = getattr(np, name)(x.astype(np.float64))
        assert np.max(np.abs(found - exact)) <= 2.0**-23
    ends = np.array([INF, -INF, NAN], np.float32)
    assert np.isnan(run(lambda t: [t.sin(), t.cos(), t.tan()], ends)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error_functions(dtype: Any) -> None:
    x = np.concatenate([rng.uniform(-6, 6, 3000), rng.uniform(5, 30, 200), [INF, -INF, NAN, -0.0]])
    x = x.astype(dtype)
    names = ("erf", "erfc", "erfcx", "log_ndtr", "entr")
    found = run(lambda t: [getattr(lm.special, name)(t) for name in names], x)
    for name, result in zip(names, found, strict=True):
        exact = getattr(scipy.special, name)(x.astype(np.float64))
        if name == "erfc":  # SciPy's is 250 ulp off in its tail
            exact = np.array([math.erfc(each) for each in x])
        ulp = 300 if name == "log_ndtr" else 40  # it squares the rounding of x / sqrt(2)
        rtol, atol = ulp * np.finfo(dtype).eps, np.finfo(dtype).tiny
        np.testing.assert_allclose(result, exact, rtol=rtol, atol=atol, err_msg=name)
    p = np.concatenate([rng.uniform(-1, 1, 999), [0.999999, 1e-6, 1, -1, 2, NAN]]).astype(dtype)
    exact = scipy.special.erfinv(p.astype(np.float64))
    np.testing.assert_allclose(run(lambda t: t.erfinv(), p), exact, rtol=8 * np.finfo(dtype).eps)


def test_gamma_functions() -> None:
    x = np.concatenate([rng.uniform(-9, 40, 999), [1e-3, 1e9, 1e-30, NAN, 3, 2]]).astype("f4")
    found = run(lambda t: (t.lgamma(), t.digamma()), x)
    wide = x.astype(np.float64)
    # 8 ulp; at its zeros 1 and 2, and between poles, terms of 10 cancel
    np.testing.assert_allclose(found[0], scipy.special.gammaln(wide), rtol=1e-6, atol=1e-5)
    keep = (x > 0) | (np.abs(np.remainder(x, 1) - 0.5) < 0.45)  # its poles magnify what x lacks
    expected = scipy.special.digamma(wide)[keep]
    # 80 ulp; near its zeros terms cancel that are up to 40
    np.testing.assert_allclose(found[1][keep], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_lgamma_beside_the_borders_of_its_formulas(dtype: str) -> None:
    borders = np.delete(np.arange(-20, 20, dtype=dtype) / 2, 20)  # without 0
    x = np.concatenate([np.nextafter(borders, borders.dtype.type(end)) for end in (-99, 99)])
    found = run(lambda t: t.lgamma(), x)
    wanted = scipy.special.gammaln(x.astype(np.float64))
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=8 * eps, atol=40 * eps)


# --- special values -------------------------------------------------------------------------------

ENDS = np.array([INF, -INF, NAN, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e-40], np.float32)
AT_ENDS: dict[str, Any] = {
    "expm1": np.expm1, "log1p": np.log1p, "log10": np.log10, "cbrt": np.cbrt, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "sigmoid": scipy.special.expit,
    "logit": scipy.special.logit, "erf": scipy.special.erf, "round": np.rint,
    "trunc": np.trunc, "ceil": np.ceil, "floor": np.floor, "sign": np.sign, "abs": np.abs,
    "isinf": np.isinf, "isfinite": np.isfinite, "isnan": np.isnan, "signbit": np.signbit,
    "isposinf": np.isposinf, "isneginf": np.isneginf, "nan_to_num": np.nan_to_num,
    "square": np.square, "exp": np.exp, "log": np.log, "sinc": np.sinc,
}  # fmt: skip


def test_special_values_and_the_sign_of_zero() -> None:
    found = run(lambda t: [getattr(t, name)() for name in AT_ENDS], ENDS)
    for (name, theirs), result in zip(AT_ENDS.items(), found, strict=True):
        with np.errstate(all="ignore"):
            expected = theirs(ENDS)
        # 8 ulp of float32: functions at their ends
        np.testing.assert_allclose(
            result.astype(np.float64), expected.astype(np.float64), rtol=1e-6, err_msg=name
        )
        zeros = (expected == 0) & (name not in ("log1p", "sinc", "abs", "logit"))
        signs = np.signbit(result[zeros]), np.signbit(expected[zeros])
        if result.dtype.kind == "f" and name != "sign":
            np.testing.assert_array_equal(*signs, name)


def test_rounding() -> None:
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.0, -0.2, 3e38], "f4")
    close(run(lambda t: t.round(), halves), np.rint(halves))
    assert np.signbit(run(lambda t: t.round(), np.float32(-0.2)))
    x = np.array([123.456, -0.05, 1e-3], np.float32)
    close(run(lambda t: t.round(decimals=2), x), torch.round(torch.from_numpy(x), decimals=2))
    close(run(lambda t: t.round(decimals=-1), x), np.array([120, -0.0, 0], np.float32))
    close(run(lambda t: t.frac(), halves), torch.frac(torch.from_numpy(halves)).numpy())
    integers = np.array([5, -7], np.int32)
    for name in ("round", "floor", "ceil", "trunc"):
        close(run(lambda t, n=name: getattr(t, n)(), integers), integers)
    half = halves[:6].astype(BF16)
    np.testing.assert_array_equal(run(lambda t: t.round(), half), np.rint(halves[:6]).astype(BF16))


def test_float_parts() -> None:
    x = np.array([0.0, -0.0, 1, -3.5, 1e-42, 3e38, INF, NAN], np.float32)
    mantissa, exponent = run(lambda t: tuple(t.frexp()), x)
    np.testing.assert_array_equal(mantissa, np.frexp(x)[0])
    np.testing.assert_array_equal(exponent[:6], np.frexp(x)[1][:6])
    close(run(lambda t: t.ldexp(3), x[:5]), np.ldexp(x[:5], 3))
    y = np.array([1, -1, INF, -4, 0, 0, 0, 1], np.float32)
    close(run(lambda a, b: a.nextafter(b), x, y), np.nextafter(x, y), ulp=0)


# --- two operands ---------------------------------------------------------------------------------

VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 7.0, 1e-40, 1e30, -1e30, INF, -INF, NAN]
PAIRS = np.array(list(itertools.product(VALUES, VALUES)), np.float32).T
BINARY: dict[str, Callable[..., Any]] = {
    "atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign, "fmod": np.fmod,
    "remainder": np.remainder, "fmax": np.fmax, "fmin": np.fmin, "logaddexp": np.logaddexp,
    "logaddexp2": np.logaddexp2, "heaviside": np.heaviside, "xlogy": scipy.special.xlogy,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "isclose": np.isclose, "nextafter": np.nextafter, "floor_divide": np.floor_divide,
    "greater": np.greater, "greater_equal": np.greater_equal, "less_equal": np.less_equal,
    "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip


def test_functions_of_two_operands_on_special_values() -> None:
    found = run(lambda a, b: [getattr(a, name)(b) for name in BINARY], *PAIRS)
    for (name, theirs), result in zip(BINARY.items(), found, strict=True):
        with np.errstate(all="ignore"):
            expected = theirs(*PAIRS)
        # 4 ulp of float32
        np.testing.assert_allclose(
            result.astype(np.float64), expected.astype(np.float64), rtol=5e-7, err_msg=name
        )
        if name in ("atan2", "copysign", "fmod"):
            number = ~np.isnan(expected)
            np.testing.assert_array_equal(
                np.signbit(result[number]), np.signbit(expected[number]), name
            )


def test_comparisons_with_nan_are_false_but_not_equal() -> None:
    nan = np.array([NAN, 1.0, NAN], np.float32)
    other = np.array([1.0, NAN, NAN], np.float32)
    found = run(lambda a, b: (a <= b, a >= b, a == b, a < b, a > b, a != b), nan, other)
    assert not np.any(found[:5])
    assert np.all(found[5])


def test_scalars_on_either_side_keep_the_dtype() -> None:
    x = np.array([1.5, -2, 4], np.float16)
    found = run(
        lambda t: [
            2 - t,
            2 / t,
            7 // t,
            7 % t,
            2**t,
            t**2,
            t > 1,
            divmod(7, t)[1],
        ],
        x,
    )
    wide = x.astype(np.float32)
    expected = [2 - wide, 2 / wide, 7 // wide, 7 % wide, 2**wide, wide**2, wide > 1, 7 % wide]
    for result, exact in zip(found, expected, strict=True):
        close(result, exact.astype(result.dtype), ulp=1)
    assert [result.dtype for result in found[:6]] == [np.float16] * 6
    bits = np.array([6, -3], np.int8)
    found = run(lambda t: [5 & t, 5 | t, 5 ^ t, 1 << t, 100 >> t, ~t], bits)
    expected = [5 & bits, 5 | bits, 5 ^ bits, [64, 0], [1, 0], ~bits]
    for result, exact in zip(found, expected, strict=True):
        np.testing.assert_array_equal(result, exact)


def test_integer_remainders_and_divisions() -> None:
    a, b = np.array(list(itertools.product([-128, -7, 0, 7, 127], [-128, -3, -1, 1, 3]))).T
    a, b = a.astype(np.int8), b.astype(np.int8)
    found = run(lambda x, y: [x.fmod(y), x % y, x // y, x.div(y, rounding_mode="trunc")], a, b)
    with np.errstate(all="ignore"):
        quotient = torch.div(torch.from_numpy(a.astype("i4")), torch.from_numpy(b.astype("i4")),
                             rounding_mode="trunc").numpy().astype(np.int8)  # fmt: skip
        expected = [np.fmod(a, b), a % b, a // b, quotient]
    for result, exact in zip(found, expected, strict=True):
        close(result, exact)
    zero = np.zeros(3, np.int32)
    for result in run(lambda x, y: [x // y, x % y, x.fmod(y)], a[:3].astype(np.int32), zero):
        np.testing.assert_array_equal(result, zero)  # by zero: 0, never a trap


def test_integer_overflow_wraps() -> None:
    x = np.array([127, -128, 100], np.int8)
    with np.errstate(all="ignore"):
        expected = [x + x, x * x, -x, x - np.int8(100), np.abs(x)]
    for found, exact in zip(run(lambda t: [t + t, t * t, -t, t - 100, t.abs()], x), expected):  # noqa: B905
        close(found, exact)


def test_combinations() -> None:
    a, b, w = (rng.normal(0, 1, (3, 4)).astype(np.float32) for _ in range(3))
    t = [torch.from_numpy(x) for x in (a, b, w)]
    pairs = [
        (lambda x, y, z: x.lerp(y, z), torch.lerp(*t)),
        (lambda x, y, z: x.lerp(y, 0.25), torch.lerp(t[0], t[1], 0.25)),
        (lambda x, y, z: x.addcmul(y, z, value=0.5), torch.addcmul(*t, value=0.5)),
        (lambda x, y, z: x.addcdiv(y, z, value=2), torch.addcdiv(*t, value=2)),
        (lambda x, y, z: x.masked_fill(y > 0, 3.0), t[0].masked_fill(t[1] > 0, 3.0)),
        (lambda x, y, z: x.add(y, alpha=2), torch.add(t[0], t[1], alpha=2)),
        (lambda x, y, z: x.clip(y, z), torch.clip(*t)),
        (lambda x, y, z: x.dist(y, 3), torch.dist(t[0], t[1], 3)),
    ]  # fmt: skip
    found = run(lambda x, y, z: [ours(x, y, z) for ours, _ in pairs], a, b, w)
    for result, (_, expected) in zip(found, pairs, strict=True):
        close(result, expected.numpy(), ulp=4)
    with pytest.raises(DTypeError, match=r"masked_fill: 0\.5 is no int64"):
        run(lambda x: x.masked_fill(x > 0, 0.5), np.arange(3))
    with pytest.raises(DTypeError, match=r'div: rounding_mode=.up.; use None, "floor" or "trunc"'):
        run(lambda x: x.div(2, rounding_mode="up"), a)


def test_selection_never_multiplies_by_a_mask() -> None:
    x = np.array([INF, -INF, NAN, 2.0], np.float32)
    mask = np.array([False, False, False, True])
    found = run(
        lambda t, m: [lm.where(m, t, 0), t.masked_fill(~m, 0), t.relu(), t.clip(-1, 1)], x, mask
    )
    np.testing.assert_array_equal(found[0], [0, 0, 0, 2])
    np.testing.assert_array_equal(found[1], [0, 0, 0, 2])
    np.testing.assert_array_equal(found[2], [INF, 0, NAN, 2])
    np.testing.assert_array_equal(found[3], [1, -1, NAN, 1])


def test_powers() -> None:
    base = np.array([-2, -1, 0, 2, 3, -0.5, 0.1, -INF], np.float32)
    exponents = np.array([3, 2, 0, 0.5, -2, 2.5, 7, 3], np.float32)
    found = run(lambda x, y: x**y, base, exponents)
    with np.errstate(all="ignore"):
        # 3 ulp of float32: NumPy's powers are rounded, too
        np.testing.assert_allclose(found, np.power(base, exponents), rtol=3e-7)
    x = np.concatenate([rng.uniform(0, 50, 2000), np.exp(rng.uniform(-5, 5, 2000))])
    y = np.concatenate([rng.uniform(-20, 20, 2000), rng.uniform(-17, 17, 2000)])
    pair = x.astype(np.float32), y.astype(np.float32)
    exact = np.power(pair[0].astype(Wide), pair[1].astype(Wide))
    with np.errstate(all="ignore"):
        _assert_within("pow", run(lambda a, b: a**b, *pair), exact, pair[1], 4)


def test_16_bit_floats_are_computed_in_float32_and_rounded_once() -> None:
    x = rng.uniform(0.05, 0.95, 64).astype(BF16)
    names = [name for name in PRECISE if name != "acosh"]
    narrow = run(lambda t: [getattr(t, name)() for name in names], x)
    wide = run(lambda t: [getattr(t, name)() for name in names], x.astype(np.float32))
    for name, low, high in zip(names, narrow, wide, strict=True):
        np.testing.assert_array_equal(low, high.astype(BF16), name)


def test_0d_empty_and_symbolic() -> None:
    for shape in ((), (0, 3)):
        x = np.full(shape, 0.5, np.float32)
        for found in run(lambda t: [t.erfc(), t.round(), t.atan2(1), t.hypot(2)], x):
            assert found.shape == shape
    x = rng.uniform(-1, 1, (5, 2)).astype(np.float32)
    found = run(lambda t: t.asin() + t.atan(), x, shapes=[("n", 2)], dims={"n": 5})
    close(found, np.arcsin(x) + np.arctan(x))


def test_integers_give_float32() -> None:
    x = np.array([1, 2, 3], np.int16)
    for found in run(lambda t: [t.atan(), t.log1p(), t.sigmoid(), t.hypot(t), t.cbrt()], x):
        assert found.dtype == np.float32

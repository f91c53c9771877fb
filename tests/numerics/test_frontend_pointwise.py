"""Elementwise methods against NumPy, SciPy and PyTorch."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
import scipy.special
import torch

from luminal.base import dtypes
from luminal.frontend.pointwise import binary
from tests.close import close
from tests.numerics.recording import run

pytestmark = pytest.mark.usefixtures("every_backend")

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.5, 1e-40, 1e30, -1e30, math.inf, -math.inf, math.nan]
X = np.concatenate([np.random.default_rng(0).normal(0, 2, 200), SPECIAL]).astype(np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)


def _ulps(found: np.ndarray, exact: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(found.astype(exact.dtype) - exact) / np.spacing(np.abs(found))))


@pytest.mark.parametrize("name", ["tanh", "erf"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tanh_and_erf_are_within_4_ulp(name: str, dtype: type) -> None:
    x = np.concatenate([np.linspace(-20, 20, 20001), np.geomspace(1e-30, 30, 5000)]).astype(dtype)
    found = run(lambda t: getattr(t, name)(), x)
    if dtype is np.float32:
        reference = {"tanh": np.tanh, "erf": scipy.special.erf}[name](x.astype(np.float64))
    else:
        reference = {"tanh": np.tanh, "erf": scipy.special.erf}[name](x)  # itself within 1 ulp
    assert _ulps(found, reference) <= 4
    ends = run(lambda t: getattr(t, name)(), np.array([-np.inf, np.inf, np.nan, -0.0], dtype))
    np.testing.assert_array_equal(ends, np.array([-1, 1, np.nan, 0], dtype))


def test_activations_like_torch() -> None:
    x = np.linspace(-12, 12, 999).astype(np.float32)
    t = torch.from_numpy(x)
    functional = torch.nn.functional
    close(run(lambda a: a.silu(), x), functional.silu(t).numpy())
    close(run(lambda a: a.gelu(), x), functional.gelu(t).numpy())
    close(run(lambda a: a.gelu(approximate="tanh"), x), functional.gelu(t, approximate="tanh"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu_is_within_the_last_digit_of_1_and_keeps_some_below_0(dtype: type) -> None:
    x = np.concatenate([np.linspace(-9, 9, 20001), np.geomspace(1e-30, 1e30, 500)]).astype(dtype)
    x, last = np.concatenate([x, -x]), float(np.finfo(dtype).eps)
    found = run(lambda t: t.gelu(), x).astype(np.float64)
    probability = scipy.special.ndtr(x.astype(np.float64))
    error = np.abs(found - x * probability) / np.abs(x).clip(1e-30)
    assert error.max() <= 3 * last
    if dtype is np.float32:  # a fifth is what cancels out at -5 of x / 2 * (1 + erf(x / sqrt(2)))
        assert (error <= 2e-3 * probability)[x > -5].all()
    ends = run(lambda t: t.gelu(), np.array([np.inf, np.nan, -0.0, -1e30], dtype))
    np.testing.assert_array_equal(ends, np.array([np.inf, np.nan, 0, 0], dtype))
    assert np.signbit(ends[2:]).all()


BINARY = {
    "+": (lambda a, b: a + b, np.add), "-": (lambda a, b: a - b, np.subtract),
    "*": (lambda a, b: a * b, np.multiply), "//": (lambda a, b: a // b, np.floor_divide),
    "%": (lambda a, b: a % b, np.remainder), "max": (binary.maximum, np.maximum),
    "min": (binary.minimum, np.minimum), "<": (lambda a, b: a < b, np.less),
    "<=": (lambda a, b: a <= b, np.less_equal), ">": (lambda a, b: a > b, np.greater),
    ">=": (lambda a, b: a >= b, np.greater_equal), "==": (lambda a, b: a == b, np.equal),
    "!=": (lambda a, b: a != b, np.not_equal),
}  # fmt: skip
PAIRS = np.array(list(itertools.product(SPECIAL, SPECIAL)), np.float32).T
INTS = [-128, -7, -1, 0, 1, 2, 5, 127]


@pytest.mark.parametrize("name", BINARY)
def test_binary_on_special_values(name: str) -> None:
    ours, theirs = BINARY[name]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run(ours, *PAIRS), theirs(*PAIRS))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
def test_binary_on_integers(name: str, dtype: type) -> None:
    ours, theirs = BINARY[name]
    pairs = np.array(list(itertools.product(INTS, INTS))).astype(dtype).T
    with np.errstate(all="ignore"):
        expected = theirs(*pairs)
    if name in ("//", "%"):
        expected = np.where(pairs[1] == 0, 0, expected).astype(dtype)  # NumPy's: undefined for %
    close(run(ours, *pairs), expected)


@pytest.mark.parametrize("name", ["+", "*", "max", "min", "<", "<=", "==", "!="])
def test_binary_on_bools(name: str) -> None:
    ours, theirs = BINARY[name]
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    close(run(ours, a, b), theirs(a, b))


def test_minimum_keeps_negative_zero() -> None:
    zeros = np.array([0.0, -0.0], np.float32)
    found = run(binary.minimum, zeros, zeros[::-1].copy())
    assert np.signbit(found).all()
    assert not np.signbit(run(lambda x: x.abs(), zeros)).any()


def test_bits_and_shifts() -> None:
    a, b = np.array([-5, 7, 1, -1], np.int32), np.array([1, 2, 40, 40], np.int32)
    close(run(lambda x, y: x & y, a, b), a & b)
    close(run(lambda x, y: x | y, a, b), a | b)
    close(run(lambda x, y: x ^ y, a, b), a ^ b)
    close(run(lambda x: ~x, a), ~a)
    close(run(lambda x: ~x, a > 0), ~(a > 0))
    close(run(lambda x, y: x << y, a, b), np.array([-10, 28, 0, 0], np.int32))
    close(run(lambda x, y: x >> y, a, b), np.array([-3, 1, 0, -1], np.int32))


def test_division_of_integers_gives_float32() -> None:
    a, b = np.array([1, 7, -3], np.int32), np.array([2, 0, 9], np.int32)
    with np.errstate(all="ignore"):
        close(run(lambda x, y: x / y, a, b), (a / b).astype(np.float32))


# --- powers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, -1, -2, 0.5, 1.0, 2.0, 1.5, -0.5, 65])
def test_float_power_of_numbers(n: float) -> None:
    with np.errstate(all="ignore"):
        expected = np.power(X.astype(np.float64), n).astype(np.float32)
    if n == 0.5:
        expected[np.isneginf(X)] = np.nan  # written as sqrt
    rtol = 3e-7 * (
        1 + 90 * (abs(n) == 65) + 40 * (n in (1.5, -0.5))
    )  # exponents scale log2's error
    found = run(lambda x: x**n, X)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=np.finfo(np.float32).tiny)


def test_float_power_on_special_values() -> None:
    with np.errstate(all="ignore"):
        expected = np.power(PAIRS[0], PAIRS[1])
    found = run(lambda x, y: x**y, *PAIRS)
    np.testing.assert_allclose(found, expected, rtol=1e-4)  # 1e30 ** 3: the exponent scales errors
    number = ~np.isnan(expected)  # a NaN has any sign
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(expected[number]))


def test_integer_power() -> None:
    base, exponent = np.array(list(itertools.product([-3, -1, 0, 1, 2, 7], range(5)))).T
    close(run(lambda x, y: x**y, base, exponent), base**exponent)
    close(run(lambda x: x**3, base), base**3)
    negative = run(lambda x, y: x**y, np.array([-1, -1, 1, 2, 5]), np.array([-3, -2, -1, -1, -2]))
    np.testing.assert_array_equal(negative, [-1, 1, 1, 0, 0])


def test_number_to_the_power_of_a_tensor() -> None:
    x = np.linspace(-4, 4, 33).astype(np.float32)
    close(run(lambda t: 2.0**t, x), 2.0**x, ulp=8)


# --- types ----------------------------------------------------------------------------------------


def test_promotion() -> None:
    i8, i64, f32 = np.ones(3, np.int8), np.ones(3, np.int64), np.ones(3, np.float32)
    bf16, f16 = f32.astype(BF16), f32.astype(np.float16)
    cases = [
        (i8, i64, "int64"), (i64, f32, "float32"), (i8, bf16, "bfloat16"), (bf16, f16, "float32"),
        (f32, f32.astype(np.float64), "float64"), (np.ones(3, np.uint8), i8, "int16"),
        (f32 > 0, i8, "int8"),
    ]  # fmt: skip
    for a, b, expected in cases:
        assert run(lambda x, y: x + y, a, b).dtype == expected


def test_numbers_are_weak() -> None:
    i8, bf16 = np.ones(3, np.int8), np.ones(3, BF16)
    assert run(lambda x: x + 2, i8).dtype == np.int8
    assert run(lambda x: x + 2.0, i8).dtype == np.float32
    assert run(lambda x: x * np.float64(0.1), bf16).dtype == BF16
    assert run(lambda x: (x > 0) + 1, i8).dtype == np.int64
    close(run(lambda x: x - np.ones((2, 1), np.int32), i8), np.zeros((2, 3), np.int32))
    close(run(lambda x: x.graph.constant([1, 2, 3]) + x, i8), np.array([2, 3, 4]))


def test_16_bit_floats_round_once_per_operation() -> None:
    x = np.random.default_rng(1).normal(0, 3, 500).astype(BF16)
    wide = x.astype(np.float32)
    found = run(lambda t: t * t + t, x)
    expected = ((wide * wide).astype(BF16).astype(np.float32) + wide).astype(BF16)
    np.testing.assert_array_equal(found, expected)
    gelu = run(lambda t: t.gelu(), wide).astype(BF16)
    np.testing.assert_array_equal(run(lambda t: t.gelu(), x), gelu)


def test_casts() -> None:
    x = np.array([1.5, -1.5, 300.0, -300.0, np.nan, np.inf], np.float32)
    close(run(lambda t: t.cast("int8"), x), np.array([1, -1, 127, -128, 0, 127], np.int8))
    close(run(lambda t: t.cast("bool"), x), np.ones(6, bool))
    close(run(lambda t: t.cast(dtypes.int32).cast("uint8"), x[:4]), x[:4].astype("i4").astype("u1"))
    close(run(lambda t: t.bitcast("int32"), x), x.view(np.int32))


def test_where_and_clip() -> None:
    x = np.array([-2.0, -0.0, 0.5, 9.0, np.nan], np.float32)
    close(run(lambda t: binary.where(t > 0, t, -1), x), np.where(x > 0, x, np.float32(-1)))
    close(run(lambda t: binary.where(t > 0, 1, 0), x), np.where(x > 0, 1, 0))
    close(
        run(lambda t: binary.where([[True], [False]], t, 0), x), np.where([[1], [0]], x, 0 * x[0])
    )
    close(run(lambda t: t.clip(-1, 1), x), np.clip(x, -1, 1))
    close(run(lambda t: t.clip(min=0), x), np.maximum(x, 0))
    close(run(lambda t: t.clamp(max=0), x), np.minimum(x, 0))
    close(run(lambda t: t.where(t > 0, 7), x), np.where(x > 0, x, np.float32(7)))


def test_broadcasting_and_symbolic_dims() -> None:
    a, b = np.ones((3, 1, 4), np.float32), np.arange(20, dtype=np.float32).reshape(5, 4)
    close(run(lambda x, y: x + y, a, b), a + b)
    shapes = [("s", 1, 4), (5, 4)]
    close(run(lambda x, y: x * y, a, b, shapes=shapes, dims={"s": 3}), a * b)


def test_floor_and_isnan_of_other_types() -> None:
    close(run(lambda t: t.floor(), np.array([1, -2])), np.array([1, -2]))
    close(run(lambda t: t.isnan(), X), np.isnan(X))
    close(run(lambda t: t.logical_not(), X), ~X.astype(bool))

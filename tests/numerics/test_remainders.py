"""Remainders and floored quotients of numbers of any size are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import luminal as lm

Array = np.ndarray[Any, Any]


def hard_numbers(dtype: str) -> Array:
    """Zeros, subnormal numbers, the greatest and the least, infinities and NaN, of both signs."""
    at = np.finfo(dtype)
    sizes = [0, 1, 1.5, 7.3, 1 / 3, 1e10, 1e-20, np.inf, at.max, at.max / 2, at.tiny, at.tiny / 2,
             at.smallest_subnormal, at.smallest_subnormal * 12345, at.tiny / 117.5]  # fmt: skip
    return np.array([sign * float(size) for size in sizes for sign in (1, -1)] + [np.nan], dtype)


def wanted(x: Array, y: Array) -> dict[str, Array]:
    with np.errstate(all="ignore"):
        named = {"mod": np.remainder, "fmod": np.fmod, "floor": np.floor_divide}
        return {name: call(x, y) for name, call in named.items()}


@pytest.mark.parametrize("backend", ["cpu", "interpreted", "reference"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pairs_of_hard_numbers(dtype: str, backend: str) -> None:
    numbers = hard_numbers(dtype)
    x, y = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    cx = lm.Graph()
    a, b = cx.tensor(x.shape, dtype, name="x"), cx.tensor(x.shape, dtype, name="y")
    (a % b).output("mod")
    lm.fmod(a, b).output("fmod")
    (a // b).output("floor")
    found = lm.compile(cx, backend=backend)({"x": x, "y": y})
    for name, exact in wanted(x, y).items():
        np.testing.assert_array_equal(found[name], exact, name)


@pytest.mark.parametrize("divisor", [1e-40, -1e-45, 3e38])
def test_numbers_as_divisors(divisor: float) -> None:
    numbers = hard_numbers("float32")
    cx = lm.Graph()
    x = cx.tensor(numbers.shape, name="x")
    (x % divisor).output("mod")
    lm.fmod(x, divisor).output("fmod")
    (x // divisor).output("floor")
    found = lm.compile(cx)({"x": numbers})
    for name, exact in wanted(numbers, np.float32(divisor)).items():
        np.testing.assert_array_equal(found[name], exact, name)

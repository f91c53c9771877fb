"""Element-wise ops on NaN, infinities, signed zeros, subnormal and extreme numbers, like PyTorch.

Every element is compared by itself: close to 0 and close to the largest number alike.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from luminal.base import dtypes
from luminal.base.errors import DTypeError
from tests.long_share import long_rows
from tests.numerics.recording import run
from tests.numerics.special_values import BOTH, Array, Op, failures

FLOATS, INTS = ("float32", "float64", "float16", "bfloat16"), ("int8", "int32", "int64", "uint8")


def numbers(dtype: str) -> Array:
    """The numbers of a dtype at which things go wrong."""
    numpy = dtypes.dtype_of(dtype).numpy
    if dtype == "bool":
        return np.array([False, True])
    if dtype not in FLOATS:
        ends = np.iinfo(numpy)
        small = [n for n in (-7, -3, -2, -1, 0, 1, 2, 3, 5, 7) if n >= ends.min]
        return np.array([ends.min, *small, ends.max], numpy)
    limits = ml_dtypes.finfo(numpy)
    sizes = [0.0, limits.smallest_subnormal, limits.tiny, limits.eps, 1e-30, 1e-20, 1e-4, 0.5, 1.0]
    sizes += [1.5, 2.0, 2.5, 3.0, 7.0, 50.0, 1e4, 1e10, 1e20, 1e30, limits.max, np.inf]
    with np.errstate(all="ignore"):
        return np.array([*map(float, sizes), *(-float(x) for x in sizes), np.nan]).astype(numpy)


def methods(names: str, ulp: float = 0.0, where: Any = torch) -> list[Op]:
    """Ops that are called alike in both libraries."""
    return [
        Op(n, lambda *xs, n=n: getattr(xs[0], n)(*xs[1:]), getattr(where, n), ulp)
        for n in names.split()
    ]


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's own overflows in narrow integers, or loses small numbers in bfloat16."""
    return lambda x: function(x if x.dtype is torch.float64 else x.float()).to(
        x.dtype if x.is_floating_point() else torch.float32
    )


# What is exact or rounded once; then what may be some units away, near zeros many.
F = torch.nn.functional
UNARY = [
    *methods("abs neg signbit square isnan isinf isposinf isneginf isfinite nan_to_num"),
    *methods("logical_not floor ceil trunc frac round relu sqrt reciprocal deg2rad rad2deg", 1),
    *methods("exp exp2 log log2 log10 rsqrt sin cos tan asin acos atan expm1 log1p sigmoid", 4),
    *methods("tanh asinh acosh atanh erfc sinc logit erfinv", 8),
    *methods("lgamma", 20),
    *methods("digamma", 100),
    *methods("relu6 leaky_relu elu selu celu silu softplus logsigmoid", 8, F),
    *methods("hardsigmoid hardtanh softshrink hardshrink", 1, F),
    Op("erf", lambda x: x.erf(), in_float32(torch.erf), 8),
    Op("softsign", lambda x: x.softsign(), in_float32(F.softsign), 8),
]


CELLS = [(dtype, backend) for dtype in (*FLOATS, *INTS, "bool") for backend in BOTH]
OFTEN = [("float32", "reference"), ("int64", "reference")]
OFTEN += [(dtype, "cpu") for dtype in ("float32", "bfloat16", "uint8", "int64", "bool")]
"""The cells of the short tests: the others are like one of them."""


@pytest.mark.parametrize(("dtype", "backend"), long_rows(CELLS, OFTEN))
def test_unary(dtype: str, backend: str) -> None:
    assert failures(UNARY, backend, numbers(dtype)) == []


# --- pairs ----------------------------------------------------------------------------------------


def by_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's, where PyTorch's vectors divide by subnormals to infinity; not for bfloat16."""
    return lambda *xs: torch.from_numpy(np.asarray(function(*(x.numpy() for x in xs))))


def step_of(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """PyTorch's heaviside but for NaN, which stays."""
    return torch.where(x.isnan(), x, torch.heaviside(x, values))


PAIRS = [
    *methods("add sub mul maximum minimum fmax fmin lt le eq ne copysign nextafter"),
    *methods("bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor"),
    *methods("div floor_divide", 1),
    *methods("atan2 hypot logaddexp xlogy", 4),
    *methods("pow", 500),  # in float64 the rounding of the exponent counts up to 1024 times
    Op("heaviside", lambda x, y: x.heaviside(y), step_of),
]
REMAINDERS = [
    Op("remainder", lambda x, y: x.remainder(y), by_numpy(np.remainder)),
    Op("fmod", lambda x, y: x.fmod(y), by_numpy(np.fmod)),
]
WHOLE = methods("floor_divide remainder fmod")  # of integers, where PyTorch raises for 0


def pairs(dtype: str) -> tuple[Array, Array]:
    """Every number beside every number."""
    given = numbers(dtype)
    return np.repeat(given, len(given)), np.tile(given, len(given))


@pytest.mark.parametrize(("dtype", "backend"), long_rows(CELLS, OFTEN))
def test_pairs(dtype: str, backend: str) -> None:
    assert failures(PAIRS, backend, *pairs(dtype)) == []


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("dtype", ["float32", "float64", *INTS])
def test_remainders(dtype: str, backend: str) -> None:
    x, y = pairs(dtype)
    if dtype in INTS:
        assert failures(WHOLE, backend, x[y != 0], y[y != 0]) == []
    else:
        assert failures(REMAINDERS, backend, x, y) == []


def test_integers_to_negative_numbers_are_refused() -> None:
    for exponent in (-1, -2):
        with pytest.raises(DTypeError, match=f"pow: int32 to the power {exponent} is no integer"):
            run(lambda x, n=exponent: x**n, np.arange(3, dtype=np.int32))


# --- a number beside a tensor ---------------------------------------------------------------------

BINARY = "add sub mul truediv floordiv lt eq".split()
BESIDE: list[Any] = [0, 1, -1, 2.5, -0.0, float("inf"), True]


def beside(names: list[str], given: list[Any]) -> Iterator[Op]:
    """Each operator with each number on either side."""
    for name in names:
        apply = getattr(operator, name)
        for n in given:
            right = lambda x, apply=apply, n=n: apply(x, n)  # noqa: E731
            left = lambda x, apply=apply, n=n: apply(n, x)  # noqa: E731
            # PyTorch's own n / x multiplies by a rounded reciprocal
            divided = lambda x, n=n: torch.true_divide(torch.tensor(n), x)  # noqa: E731
            yield Op(f"{name} with {n} at its right", right, right)
            yield Op(f"{name} with {n} at its left", left, divided if name == "truediv" else left)


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float32", "bfloat16"])
def test_numbers_beside_tensors(dtype: str, backend: str) -> None:
    assert failures(list(beside(BINARY, BESIDE)), backend, numbers(dtype)) == []

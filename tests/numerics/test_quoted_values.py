"""Single lines that once gave other values than PyTorch; the tests beside have their classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import luminal as lm
from luminal.base.errors import DTypeError
from tests.numerics.batch import BACKENDS, Case, check
from tests.numerics.recording import run

F, TF = lm.nn.functional, torch.nn.functional
BITS, ONES = np.array([True, True, False]), np.array([1, 1, 0], np.float32)
CUBE, FIVE = np.arange(24, dtype=np.float32).reshape(2, 3, 4), np.arange(5, dtype=np.float32)
SIGNED = np.array([[[1, -2, 3, -4, -1, -1]]], np.float32)
WITH_INF = np.array([[[1, np.inf, 3]]], np.float32)
THREE = np.ones((1, 1, 3), np.float32)
NEAR, FAR = np.array([1, -1, 0, 2], np.float16), np.array([2, 0, 1, 2], np.float16)
LARGE, SMALL = FIVE[1:] * np.float32(1e20), FIVE[1:] * np.float32(1e-30)
MASK, FIRST, BYTES = np.array([False, False]), np.array([0]), np.array([0, 1, 255], np.uint8)
WORDS, HALF = np.array([2, -1, 1], np.int32), np.array(0.5, np.float64)


def both(name: str, call: Callable[..., Any], *arrays: Any) -> Case:
    return Case(name, call, call, arrays)


def of_each(name: str, call: Callable[..., Any], *arrays: Any) -> Case:
    """`call` gets the library's functional first."""
    return Case(name, lambda *x: call(F, *x), lambda *x: call(TF, *x), arrays)


LINES = [
    both("0 / tensor([True, True, False])", lambda x: 0 / x, BITS),
    both("0 / tensor([1., 1., 0.])", lambda x: 0 / x, ONES),
    both("0 / mask", lambda x: 0.0 / (x > 0).float(), ONES),
    Case("nextafter", lambda x, y: x.nextafter(y), torch.nextafter, [NEAR, FAR], 0),
    of_each("lp_pool, p = 3", lambda f, x: f.lp_pool1d(x, 3, 2), SIGNED),
    of_each("lp_pool, p = 1", lambda f, x: f.lp_pool1d(x, 1, 2), SIGNED),
    of_each("conv_transpose", lambda f, *x: f.conv_transpose1d(*x, stride=2), WITH_INF, THREE),
    both("x[0, :, idx]", lambda x, idx: x[0, :, idx], CUBE, np.array([0, 2])),
    both("std of 1e20", lambda x: x.std(), LARGE),
    both("std of 1e-30", lambda x: x.std(), SMALL),
    both("norm of one element", lambda x: x[:1].norm(), LARGE),
    of_each("cosine_similarity", lambda f, x: f.cosine_similarity(x[:1], x[:1], 0), LARGE),
    both("lgamma(2)", lambda x: x.lgamma(), np.array([1, 2], np.float32)),
    both("int32 ** negative elements", lambda x, y: x**y, WORDS, -np.abs(WORDS)),
    both("0-d float64 beside float32", lambda x, y: x + y, FIVE, HALF),
    both("0-d float64 beside int32", lambda x, y: x + y, WORDS, HALF),
    both("0-d int64 beside int32", lambda x, y: x + y, WORDS, np.array(3)),
    of_each("max_pool", lambda f, x: f.max_pool1d(x, 6, 2, ceil_mode=True), FIVE.reshape(1, 1, 5)),
    both("uint8 + -1", lambda x: x + -1, BYTES),
    both("uint8 < -1", lambda x: x < -1, BYTES),
    both("index_fill", lambda x, i: x.index_fill(0, i, 1), MASK, FIRST),
    both("scatter", lambda x, i: x.scatter(0, i, 1), MASK, FIRST),
    both("scatter of 0", lambda x, i: x.scatter(0, i, 0), ~MASK, FIRST),
    both("x[2:0]", lambda x: x[2:0], FIVE),
    both("x[1:-1]", lambda x: x[1:-1], FIVE[:1]),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_lines(backend: str) -> None:
    check(LINES, backend)


def test_zero_over_zeros_and_ones_exactly() -> None:
    np.testing.assert_array_equal(run(lambda x: 0 / x, BITS), [0, 0, np.nan])


def test_the_zeros_of_lgamma_exactly() -> None:
    for dtype in (np.float16, np.float32, np.float64):
        assert run(lambda x: x.lgamma(), np.array([1, 2], dtype)).tolist() == [0, 0]


@pytest.mark.parametrize("exponent", [-1, -2])
def test_int32_to_a_negative_number_is_refused_as_in_pytorch(exponent: int) -> None:
    with pytest.raises(RuntimeError, match="negative integer powers"):
        torch.from_numpy(WORDS) ** exponent
    with pytest.raises(DTypeError, match=f"to the power {exponent} is no integer"):
        run(lambda x: x**exponent, WORDS)


def test_what_the_table_of_differences_says() -> None:
    """NaN stays in sign and heaviside; sums and products of narrow integers are wide."""
    nan = np.array([np.nan], np.float32)
    assert np.isnan(run(lambda x: [x.sign(), x.heaviside(x * 0 + 1)], nan)).all()
    for narrow, product, total in [
        (np.int8, np.int32, np.int64), (np.uint8, np.int32, np.uint64),
        (np.int16, np.int32, np.int64), (np.uint16, np.uint32, np.uint64),
        (np.bool_, np.int32, np.int64),
    ]:  # fmt: skip
        found = run(lambda x: [x @ x, x.cumsum(0), x.sum(), x.prod()], np.ones(3, narrow))
        assert [x.dtype for x in found] == [product, total, total, total]

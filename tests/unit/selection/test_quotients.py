"""Quotients by what a row shares: products with its reciprocal, where divisions are dear."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import luminal as lm
from luminal.backends.device_costs import cores, gpu
from luminal.base.costs import Costs
from luminal.base.numerics import Numerics
from luminal.compiler.compile import lower_to_algebra
from luminal.selection.fast import respell
from tests.backends.groups.both_meanings import backend, compiled

DEAR = gpu(backend().target)
CHEAP = cores(backend().target)


def ops(y: lm.Tensor, costs: Costs = DEAR, numerics: Numerics = Numerics.STANDARD) -> Counter[str]:
    y.output("y")
    _, lowered = lower_to_algebra(y.graph.graph(), backend())
    return Counter(term.op for term in respell(lowered, costs, numerics).order())


def rows() -> lm.Tensor:
    return lm.Graph().tensor((3, 40), name="x")


def test_a_row_is_divided_once() -> None:
    found = ops(rows().softmax(-1))
    assert (found["Div"], found["Recip"]) == (0, 1)


@pytest.mark.parametrize(
    ("costs", "numerics"), [(CHEAP, Numerics.STANDARD), (DEAR, Numerics.EXACT)]
)
def test_it_is_not_where_it_does_not_pay_or_must_not_round(
    costs: Costs, numerics: Numerics
) -> None:
    x = rows()
    found = ops(x / x.max(-1, keepdim=True)[0], costs, numerics)
    assert (found["Div"], found["Recip"]) == (1, 0)


def test_divisors_of_single_elements_divide() -> None:
    x = rows()
    found = ops(x / (x * x + 1) + x.sum(-1)[:, None] / (x.max(-1, keepdim=True)[0] + 9))
    assert (found["Div"], found["Recip"]) == (2, 0)


def test_the_values_are_as_near_as_two_roundings_are() -> None:
    rng = np.random.default_rng(0)
    given = (rng.standard_normal((3, 40)) * 10.0 ** rng.integers(-9, 9, (3, 40))).astype(np.float32)
    x = rows()
    (x / x.abs().sum(-1, keepdim=True)).output("y")
    found = compiled(x.graph.graph())({"x": given})["y"]
    wide = given.astype(np.float64)
    expected = wide / np.abs(wide).sum(-1, keepdims=True)
    # A reciprocal and a product instead of a quotient, and the sum of a row of 40.
    np.testing.assert_allclose(found, expected, rtol=2e-6)

"""The respellings that `fast` makes by hand are rules of class rounding: so are they tested."""

from __future__ import annotations

import random

import pytest

from luminal.base.numerics import Class, Numerics
from luminal.rules import notation
from luminal.selection.fast import respell
from tests.machines import COSTS
from tests.rules.agreement import Compared, agree
from tests.rules.instances import SPECIAL, Instance


def attention(t: str) -> str:
    """Queries over i, keys over t: one pass, its quotient pulled out of the sum."""
    scores = f"Sum({{j}}, q[i, j] * k[{t}, j])"
    e = f"Exp({scores} + Max({{{t}}}, {scores}) * -1)"
    return f"Sum({{{t}}}, {e} / Sum({{{t}}}, {e}) * v[{t}, l])"


TEXTS = (
    attention("k"),
    attention("s"),
    "Sum({i, k}, x[i, k]) + Sum({k}, x[i, k])",
    "Sum({i, empty}, x[i, empty]) + Sum({empty}, x[i, empty])",
    "Max({i, k}, x[i, k]) + Max({k}, x[i, k])",
    "Max({i, none}, x[i, none]) + Max({none}, x[i, none])",
    "Sum({long}, x[long] * y[long])",
    "Sum({long}, x[long])",
    "Max({long}, x[long])",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_respelling_agrees_with_the_program(text: str) -> None:
    rng = random.Random(text)
    compared = Compared()
    for k in range(8 if "long" in text else 16):
        instance = Instance(rng, SPECIAL if k % 2 else ())
        term = instance.concrete(notation.pattern(text))
        spelled = respell(instance.lowered(term), COSTS, Numerics.STANDARD).lowered.roots[0].term
        assert spelled is not term
        compared += agree(instance, term, spelled, Class.ROUNDING)
    assert compared.numbers or "none" in text  # an empty maximum is -inf
    assert compared.others or "empty" in text


def test_no_quotient_leaves_a_sum_that_may_be_empty() -> None:
    instance = Instance(random.Random(0), ())
    term = instance.concrete(notation.pattern(attention("empty")))
    assert respell(instance.lowered(term), COSTS, Numerics.STANDARD).lowered.roots[0].term is term

"""Rules that move reads below binders: a bound axis never catches a free one."""

from __future__ import annotations

import random

import pytest

from luminal.base.numerics import Class
from luminal.egraph import saturate
from luminal.rules import RULES, notation
from tests.machines import COSTS
from tests.rules.checker import check_spellings
from tests.rules.instances import AXES, SPECIAL, Instance

CAUGHT = (
    "At(Sum({k}, x[i, k] * y[k]), i=3 - k)",
    "At(Max({k}, x[i, k]), i=3 - k)",
    "At(Sum({j, k}, x[i, j, k]), i=3 - k)",
    "At(Sum({k}, Sum({j}, x[i, j, k]) * y[i, k]), i=3 - k)",
    "At(Sum({k}, Sum({j}, x[i, j, k]) * y[i, k]), i=j + 1)",
    "At(At(Sum({k}, x[i, k]), i=3 - k), k=3 - i)",
    "At(At(x[i, k], i=k, k=i), i=3 - k)",
    "At(At(x[i, k] + y[k], i=3 - k), k=3 - i)",
    "At(Sum({k}, At(x[i, k], i=3 - k, k=3 - i)), i=3 - k)",
    "At(Sum({k}, x[i, k]), i=3 - k) * z2[k]",
    "Sum({k}, At(Sum({k}, x[i, k]), i=3 - k) * y[k])",
    "Sum({i}, Sum({k}, x[i, k] * y[k]) * z2[i, k])",
    "Sum({k}, Sum({k}, x[i, k]) * y[k])",
    "Sum({k}, Sum({j}, x[i, j] * y[j, k]) * z2[j, k])",
    "Max({k}, Max({k}, x[i, k]) + y[k])",
)
EXACT = tuple(rule for rule in RULES if rule.kind is Class.EXACT)


@pytest.mark.parametrize("text", CAUGHT)
def test_no_axis_is_captured(text: str) -> None:
    for special in ((), SPECIAL):
        instance = Instance(random.Random(text), special)
        term = instance.concrete(notation.pattern(text))
        classes = saturate(instance.lowered(term), COSTS, rules=EXACT)
        check_spellings(instance, term, classes, Class.EXACT)
        if not special:  # rules one after the other may pass NaN on where one alone may not
            classes = saturate(instance.lowered(term), COSTS)
            check_spellings(instance, term, classes, Class.ROUNDING)


def test_a_bound_axis_that_occurs_in_the_indices_is_renamed() -> None:
    instance = Instance(random.Random(0))
    term = instance.concrete(notation.pattern(CAUGHT[0]))
    classes = saturate(instance.lowered(term), COSTS)
    bound = {a.name for c in classes.classes for s in c.spellings if s.op == "Sum" for a in s.attrs}
    assert bound == {"k", "k.bound"}
    assert AXES["k"].name == "k"

"""Exponentials of what is below a maximum: powers of 2, where those take less."""

from __future__ import annotations

from collections import Counter

import pytest

import luminal as lm
from luminal.backends.device_costs import cores, gpu
from luminal.base.costs import Costs
from luminal.base.numerics import Numerics
from luminal.compiler.compile import lower_by_stages, lower_to_algebra
from luminal.frontend.matrices.attention import scaled_dot_product_attention
from luminal.program import selection_text
from luminal.selection.fast import respell
from tests.backends.groups import cascade_fragments as fragments
from tests.backends.groups.both_meanings import backend

LESS = gpu(backend().target)
SAME = cores(backend().target)


def ops(y: lm.Tensor, costs: Costs = LESS, numerics: Numerics = Numerics.STANDARD) -> Counter[str]:
    y.output("y")
    _, lowered = lower_to_algebra(y.graph.graph(), backend())
    found = Counter(term.op for term in respell(lowered, costs, numerics).order())
    return Counter({op: found[op] for op in ("Exp", "Exp2") if found[op]})


def rows(dtype: str = "float32") -> lm.Tensor:
    return lm.Graph().tensor((3, 40), name="x", dtype=dtype)


def test_a_softmax_has_powers_of_two() -> None:
    assert ops(rows().softmax(-1)) == {"Exp2": 1}
    x = rows()
    assert ops(lm.where(x < 3, x, -float("inf")).softmax(-1)) == {"Exp2": 1}


def test_exponentials_of_large_numbers_stay() -> None:
    """A product's rounding would be many ulp of theirs."""
    assert ops(rows().exp()) == {"Exp": 1}
    x = rows()
    assert ops((x - 1).exp() + (x - x.sum(-1, keepdim=True)).exp()) == {"Exp": 2}


@pytest.mark.parametrize(("costs", "numerics"), [(SAME, Numerics.STANDARD), (LESS, Numerics.EXACT)])
def test_they_stay_where_that_does_not_pay_or_must_not_round(
    costs: Costs, numerics: Numerics
) -> None:
    assert ops(rows().softmax(-1), costs, numerics) == {"Exp": 1}


def test_what_a_relaxed_pass_may_round_is_in_its_text() -> None:
    cx = lm.Graph()
    q, k, v = (cx.tensor((2, 70, 16), name=name, dtype="bfloat16") for name in "qkv")
    scaled_dot_product_attention(q, k, v).output("y")
    for numerics in (Numerics.STANDARD, Numerics.RELAXED):
        stages = lower_by_stages(cx.graph(), fragments.backend(), numerics)
        text = selection_text.to_text(stages.selection)
        assert ("cascade roughly" in text) == (numerics is Numerics.RELAXED)
        assert selection_text.parse(text, stages.lowered) == stages.selection

"""Any choice of spellings computes what the program does; the default is the program itself."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from luminal.algebra.evaluate import evaluate, inputs_of
from luminal.algebra.lower import Lowered, lower
from luminal.algebra.terms import term_order
from luminal.egraph import Classes, saturate
from tests.rules.programs import PROGRAMS, Program, program

Array = np.ndarray[Any, Any]


def any_choice(classes: Classes, rng: random.Random) -> dict[str, str]:
    """A random spelling of some classes."""
    share = rng.choice((0.1, 0.5, 1.0))
    return {
        gene.fingerprint: rng.choice(gene.spellings).fingerprint
        for gene in classes.genes()
        if rng.random() < share
    }


def values(lowered: Lowered, case: Program) -> list[Array]:
    return evaluate(lowered, inputs_of(lowered, case.inputs), case.dims, wide=True)


def check(name: str, count: int) -> None:
    case = program(name)
    lowered = lower(case.graph)
    classes = saturate(lowered)
    expected = values(lowered, case)
    rng = random.Random(name)
    for _ in range(count):
        choice = any_choice(classes, rng)
        found = values(classes.spell(choice), case)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6, err_msg=str(choice))


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_spellings_compute_the_same(name: str) -> None:
    check(name, 20)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_random_spellings_compute_the_same(name: str) -> None:
    check(name, 200)


def test_no_choice_is_the_default_program() -> None:
    lowered = lower(program("llama").graph)
    classes = saturate(lowered)
    assert classes.spell({}) is lowered
    assert classes.spell({"no class": "no spelling"}) is lowered
    same = {gene.fingerprint: gene.spellings[0].fingerprint for gene in classes.genes()}
    assert classes.spell(same) is lowered


def test_the_form_that_cascades_is_found() -> None:
    """`Sum(t, p*v) / l`."""
    lowered = lower(program("attention_causal").graph)
    classes = saturate(lowered)
    (root,) = classes.roots
    assert any(spelling.op == "Div" for spelling in classes.classes[root].spellings)


def test_three_matrices_in_both_orders() -> None:
    lowered = lower(program("matrices").graph)
    classes = saturate(lowered)
    (root,) = classes.roots
    of_sums = {s.attrs for s in classes.classes[root].spellings if s.op == "Sum"}
    assert len(of_sums) >= 2


def test_merged_weights() -> None:
    classes = saturate(lower(program("llama").graph))
    names = {a.name for each in classes.classes for a in each.axes if a.name.endswith(".cat")}
    assert len(names) >= 2, names
    assert any(name.count("+") == 2 for name in names), names


def test_terms_are_counted_once() -> None:
    lowered = lower(program("llama").graph)
    classes = saturate(lowered)
    assert len(term_order(r.term for r in lowered.roots)) >= len(
        [c for c in classes.classes if not c.spellings[0].rule]
    )

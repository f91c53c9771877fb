"""Every rule by name: both sides agree as its class says, and its twin stays alone."""

from __future__ import annotations

import random

import pytest

from luminal.base.numerics import Class
from luminal.egraph.handlers import HANDLERS
from luminal.rules import RULES, Rule, identities, notation
from tests.long_share import mostly_long
from tests.rules.agreement import Compared
from tests.rules.checker import (
    CLEAN,
    check,
    check_spellings,
    matches,
    matches_in,
    saturated,
    special,
)
from tests.rules.draws import drawn
from tests.rules.handled import DRAWS, Drawer
from tests.rules.instances import Instance
from tests.rules.samples import SAMPLES

HANDLED_SAMPLES = 24
APPROXIMATED = frozenset(("Exp", "Log", "Exp2", "Log2", "Sin", "Cos"))  # bits are a backend's own
PLAIN = [rule for rule in RULES if not rule.handler]
HANDLED = [rule for rule in RULES if rule.handler]


def name_of(rule: Rule) -> str:
    return rule.name


@pytest.mark.parametrize("rule", PLAIN, ids=name_of)
def test_both_sides_agree(rule: Rule) -> None:
    compared = check(rule, SAMPLES // 6)
    assert compared.numbers > SAMPLES // 12
    if "float" in str(drawn(rule, random.Random(0))[1].dtype):
        assert compared.others, "no NaN, no infinity"


@pytest.mark.long
@pytest.mark.parametrize("rule", PLAIN, ids=name_of)
def test_both_sides_agree_on_many(rule: Rule) -> None:
    for seed in range(10):
        check(rule, SAMPLES, seed=str(seed))


@pytest.mark.parametrize("rule", [r for r in PLAIN if "K == {}" not in r.guards], ids=name_of)
def test_the_egraph_applies_it(rule: Rule) -> None:
    rng = random.Random(rule.name)
    while True:
        _, binding, left = drawn(rule, rng)
        if all(binding.sets.values()):
            break
    assert matches(rule, left) > 0


def check_handled(rule: Rule, seed: str, samples: int) -> None:
    rng = random.Random(rule.name + seed)
    compared, matched = Compared(), 0
    for k in range(samples):
        instance = Instance(rng, special(rule.kind) if k % 3 else ())  # long sums with NaN say less
        term = DRAWS[rule.name](Drawer(instance))
        classes = saturated(instance, term, *CLEAN, rule)
        compared += check_spellings(instance, term, classes, rule.kind)
        matched += matches_in(classes, rule) > 0
    assert matched > samples // 10
    assert compared.numbers >= samples // 2
    assert compared.others or rule.name in ("at-of-index",)


@pytest.mark.parametrize("rule", mostly_long(HANDLED, 4), ids=name_of)
def test_a_handler_gives_what_equals_its_term(rule: Rule) -> None:
    check_handled(rule, "", HANDLED_SAMPLES)


@pytest.mark.long
@pytest.mark.parametrize("rule", HANDLED, ids=name_of)
def test_a_handler_gives_what_equals_many_terms(rule: Rule) -> None:
    check_handled(rule, "many", 20 * HANDLED_SAMPLES)


@pytest.mark.parametrize("rule", HANDLED, ids=name_of)
def test_a_handler_takes_its_example(rule: Rule) -> None:
    instance = Instance(random.Random(0), special(rule.kind))
    term = instance.concrete(notation.pattern(rule.example))
    classes = saturated(instance, term, *CLEAN, rule)
    assert matches_in(classes, rule) > 0
    check_spellings(instance, term, classes, rule.kind)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_its_twin_stays_alone(rule: Rule) -> None:
    assert rule.twin, "name a term that the rule must leave alone"
    instance = Instance(random.Random(0))
    term = instance.concrete(notation.pattern(rule.twin))
    assert matches_in(saturated(instance, term, rule), rule) == 0


def test_every_handler_is_named_by_a_rule() -> None:
    assert {rule.handler for rule in HANDLED} == set(HANDLERS)
    assert {rule.name for rule in HANDLED} == set(DRAWS)


def test_exact_rules_have_no_approximated_operation() -> None:
    """Its results are in no order that all backends keep: a maximum of them need not be the one of
    the largest operand.
    """
    for rule in PLAIN:
        parts = [p for side in (rule.lhs, rule.rhs) for p in notation.parts(notation.pattern(side))]
        approximated = any(isinstance(p, notation.Apply) and p.op in APPROXIMATED for p in parts)
        assert not approximated or rule.kind is not Class.EXACT, rule.name


def test_exact_identities_subsume() -> None:
    """The left side of others may be wanted: for its numbers, or for its type."""
    exact = {rule.name for rule in identities.RULES if rule.kind is Class.EXACT}
    assert {rule.name for rule in CLEAN} == exact | {"add-zero", "cast-to-same"}


def test_names_are_kebab_case_and_tell_rules_apart() -> None:
    assert all(rule.name == rule.name.lower() and "_" not in rule.name for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)

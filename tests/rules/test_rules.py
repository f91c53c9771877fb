"""Every rule by name: both sides agree as its class says, and its twin stays alone."""

from __future__ import annotations

import random

import pytest

from luminal.egraph import saturate
from luminal.egraph.classes import Classes
from luminal.egraph.handlers import HANDLERS
from luminal.rules import RULES, Class, Rule, notation
from tests.rules.instances import Instance, agree, build, draw

SAMPLES = 60  # 12 let a wrong sign pass one time in eight
TRIES = 20_000
CLEAN = tuple(rule for rule in RULES if rule.subsumes)
PLAIN = [rule for rule in RULES if not rule.handler]
HANDLED = [rule for rule in RULES if rule.handler]


def name_of(rule: Rule) -> str:
    return rule.name


def matches(classes: Classes, rule: Rule) -> int:
    return sum(row.matches for row in classes.report.rows if row.rule == rule.name)


@pytest.mark.parametrize("rule", PLAIN, ids=name_of)
def test_both_sides_agree(rule: Rule) -> None:
    rng = random.Random(rule.name)
    samples = compared = 0
    for _ in range(TRIES):
        instance = Instance(rng, special=rule.kind is Class.EXACT)
        binding = draw(rule, instance)
        if binding is None:
            continue
        dtype = next(iter(binding.terms.values())).dtype
        lhs = build(notation.pattern(rule.lhs), binding, instance, dtype)
        rhs = build(notation.pattern(rule.rhs), binding, instance, lhs.dtype)
        assert lhs.dtype is rhs.dtype
        compared += agree(instance, lhs, rhs, rule.kind)
        samples += 1
        if samples == SAMPLES:
            break
    assert samples == SAMPLES, "the guards hold too seldom"
    assert compared, "nothing was finite"


@pytest.mark.parametrize("rule", [r for r in PLAIN if "K == {}" not in r.guards], ids=name_of)
def test_the_egraph_applies_it(rule: Rule) -> None:
    rng = random.Random(rule.name)
    for _ in range(TRIES):
        instance = Instance(rng)
        binding = draw(rule, instance)
        if binding is not None and all(binding.sets.values() or [True]):
            break
    assert binding is not None
    dtype = next(iter(binding.terms.values())).dtype
    lhs = build(notation.pattern(rule.lhs), binding, instance, dtype)
    classes = saturate(instance.lowered(lhs), rules=(rule,))
    assert matches(classes, rule) > 0


@pytest.mark.parametrize("rule", HANDLED, ids=name_of)
def test_a_handler_gives_what_equals_its_example(rule: Rule) -> None:
    assert rule.handler in HANDLERS
    for seed in range(3):
        instance = Instance(random.Random(seed), special=rule.kind is Class.EXACT)
        term = instance.concrete(notation.pattern(rule.example))
        classes = saturate(instance.lowered(term), rules=(*CLEAN, rule))
        assert matches(classes, rule) > 0
        for gene in classes.genes():
            for spelling in gene.spellings:
                spelled = classes.spell({gene.fingerprint: spelling.fingerprint})
                found = spelled.roots[0].term
                agree(instance, term, found, rule.kind)


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_its_twin_stays_alone(rule: Rule) -> None:
    assert rule.twin, "name a term that the rule must leave alone"
    instance = Instance(random.Random(0))
    term = instance.concrete(notation.pattern(rule.twin))
    classes = saturate(instance.lowered(term), rules=(rule,))
    assert matches(classes, rule) == 0


def test_every_handler_is_named_by_a_rule() -> None:
    assert {rule.handler for rule in HANDLED} == set(HANDLERS)


def test_names_are_kebab_case_and_tell_rules_apart() -> None:
    assert all(rule.name == rule.name.lower() and "_" not in rule.name for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)

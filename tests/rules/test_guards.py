"""Every guard of every rule is needed: without it the rule is wrong, or the e-graph larger."""

from __future__ import annotations

import random

import pytest

from luminal.algebra.lower import lower
from luminal.base.numerics import Class
from luminal.egraph import saturate
from luminal.rules import RULES, Rule, notation
from tests.long_share import long_rows
from tests.machines import COSTS
from tests.rules.agreement import Fault
from tests.rules.checker import (
    CLEAN,
    STANDARD,
    check,
    check_spellings,
    matches,
    matches_in,
    saturated,
    special,
    without,
)
from tests.rules.decisive import GROWTH, WRONG
from tests.rules.draws import drawn
from tests.rules.instances import Instance
from tests.rules.programs import PROGRAMS, program
from tests.rules.samples import SAMPLES

TWINS = 1
GUARDS = [(rule, guard) for rule in RULES for guard in rule.guards]
PLAIN = [(rule, guard) for rule, guard in GUARDS if not rule.handler]
SMALL = [(rule, guard) for rule, guard in GUARDS if notation.is_growth(guard)]
SOUND = [(rule, guard) for rule, guard in GUARDS if not notation.is_growth(guard)]
SPLITS = ("split-sum", "split-max")  # their e-graphs are the largest
MOST = {"llama": 550, "moe": 220}  # nodes; of the other programs 80


def named(value: Rule | str) -> str:
    return value.name if isinstance(value, Rule) else value


def bare(rule: Rule, guard: str) -> tuple[str, str]:
    """The rule's name, and the guard without its mark."""
    return rule.name, guard.removeprefix("growth(")[:-1] if notation.is_growth(guard) else guard


@pytest.mark.parametrize(("rule", "guard"), [g for g in SOUND if not g[0].handler], ids=named)
def test_without_a_guard_the_rule_is_wrong(rule: Rule, guard: str) -> None:
    with pytest.raises(Fault):
        check(rule, 4 * SAMPLES, guard)


@pytest.mark.parametrize(("rule", "guard"), [g for g in SOUND if g[0].handler], ids=named)
def test_without_a_guard_the_handler_is_wrong(rule: Rule, guard: str) -> None:
    rng = random.Random(0)
    found = 0
    while not found:
        instance = Instance(rng, special(rule.kind))
        term = instance.concrete(notation.pattern(WRONG[bare(rule, guard)]))
        classes = saturated(instance, term, *CLEAN, without(rule, guard))
        try:
            check_spellings(instance, term, classes, rule.kind)
        except Fault:
            found += 1
    assert matches_in(classes, rule) > 0
    assert matches_in(saturated(instance, term, *CLEAN, rule), rule) == 0


@pytest.mark.parametrize(("rule", "guard"), PLAIN, ids=named)
def test_egglog_heeds_each_guard(rule: Rule, guard: str) -> None:
    """Terms that one guard alone forbids: a twin each."""
    rng = random.Random(rule.name)
    seen = 0
    while seen < TWINS:
        _, binding, left = drawn(rule, rng, against=guard)
        if all(binding.sets.values()):  # a reduction over nothing is no term
            assert matches(rule, left) == 0
            assert matches(without(rule, guard), left) > 0
            seen += 1


@pytest.mark.parametrize(("rule", "guard"), [g for g in SMALL if not g[0].handler], ids=named)
def test_a_rule_is_right_without_a_guard_on_growth(rule: Rule, guard: str) -> None:
    check(rule, SAMPLES // 8, guard)


@pytest.mark.long
@pytest.mark.parametrize(("rule", "guard"), [g for g in SMALL if not g[0].handler], ids=named)
def test_a_rule_is_right_on_many_without_a_guard_on_growth(rule: Rule, guard: str) -> None:
    check(rule, 6 * SAMPLES, guard)


@pytest.mark.parametrize(
    ("rule", "guard"),
    long_rows(SMALL, [g for g in SMALL if g[0].name not in SPLITS][::2]),
    ids=named,
)
def test_without_a_guard_on_growth_the_egraph_is_larger(rule: Rule, guard: str) -> None:
    """Nodes; or, where the rule then finds what is there already, its matches."""
    instance = Instance(random.Random(0), special(Class.ROUNDING))
    term = instance.concrete(notation.pattern(GROWTH[bare(rule, guard)]))
    less = without(rule, guard)
    small = saturated(instance, term, *STANDARD)
    large = saturated(instance, term, *(less if r is rule else r for r in STANDARD))
    one, other = ((c.report.nodes, matches_in(c, rule)) for c in (small, large))
    assert other > one
    check_spellings(instance, term, large, Class.ROUNDING)


def test_terms_are_named_for_all_guards_that_need_one() -> None:
    assert set(GROWTH) == {bare(*each) for each in SMALL}
    assert set(WRONG) == {bare(*each) for each in SOUND if each[0].handler}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_stay_small(name: str) -> None:
    report = saturate(lower(program(name).graph), COSTS).report
    assert report.limit == ""
    assert report.nodes <= MOST.get(name, 80)

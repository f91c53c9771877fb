"""What the tests do with a rule: see that it is right, and what the e-graph makes of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from luminal.algebra.terms import Term, term_order
from luminal.base.numerics import Class
from luminal.egraph import Limits, saturate
from luminal.egraph.classes import Classes
from luminal.egraph.session import session
from luminal.egraph.spell import spell
from luminal.rules import RULES, Rule
from tests.machines import COSTS
from tests.rules.agreement import TYPE, Compared, Fault, agree
from tests.rules.draws import drawn, side
from tests.rules.instances import EXTREME, SPECIAL, IllTyped, Instance

CLEAN = tuple(rule for rule in RULES if rule.subsumes)
STANDARD = tuple(rule for rule in RULES if rule.kind <= Class.ROUNDING)


def without(rule: Rule, guard: str) -> Rule:
    """The rule with a guard less."""
    assert guard in rule.guards
    return replace(rule, guards=tuple(text for text in rule.guards if text != guard))


def special(kind: Class) -> tuple[float, ...]:
    """Values to draw: numbers that leave the range of their dtype only where bits are compared."""
    return EXTREME if kind is Class.EXACT else SPECIAL


# --- the sides of a row


def check(rule: Rule, samples: int, against: str | None = None, seed: str = "") -> Compared:
    """Raises Fault if the sides of a rule disagree on terms drawn for it; `against` is a guard that
    the terms violate, all others allow them.
    """
    rng = random.Random(rule.name + seed)
    compared = Compared()
    for _ in range(samples):
        compared += check_once(rule, rng, against)
    return compared


def meets(reason: str, rule: Rule, samples: int, seed: str = "") -> bool:
    """Do the sides of a rule disagree for this reason, among others?"""
    rng = random.Random(rule.name + seed)
    for _ in range(samples):
        try:
            check_once(rule, rng)
        except Fault as fault:
            if fault.reason == reason:
                return True
    return False


def check_once(rule: Rule, rng: random.Random, against: str | None = None) -> Compared:
    """One of `check`'s samples."""
    instance, binding, left = drawn(rule, rng, special(rule.kind), against)
    try:
        right = side(rule.rhs, binding, instance, left.dtype)
    except IllTyped as error:
        raise Fault(TYPE, str(error)) from None
    return agree(instance, left, right, rule.kind)


# --- the e-graph


def matches(rule: Rule, term: Term) -> int:
    """How often a rule without a handler matches in a term."""
    with session((rule,)) as egraph:
        egraph.add_terms(term_order([term]))
        egraph.step()
        return egraph.matches[rule.name]


def saturated(instance: Instance, term: Term, *rules: Rule) -> Classes:
    """The classes of a term under these rules alone."""
    return saturate(instance.lowered(term), COSTS, rules=rules, limits=Limits(nodes=5_000))


def matches_in(classes: Classes, rule: Rule) -> int:
    return sum(row.matches for row in classes.report.rows if row.rule == rule.name)


def spellings(classes: Classes) -> Iterator[Term]:
    """The program with the first spelling of every class, then with each other one chosen."""
    yield spell(classes, {}).roots[0].term
    for gene in classes.genes():
        for spelling in gene.spellings[1:]:
            chosen = classes.spell({gene.fingerprint: spelling.fingerprint})
            yield chosen.roots[0].term


def check_spellings(instance: Instance, term: Term, classes: Classes, kind: Class) -> Compared:
    """Raises Fault unless all spellings agree with the term."""
    compared = Compared()
    for found in spellings(classes):
        compared += agree(instance, term, found, kind)
    return compared

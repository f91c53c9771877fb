"""Proof of conditions from known facts, and simplification under facts.

Sound and incomplete: linear combinations with the facts, symbolic bounds of atoms, intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from luminal.shape.arithmetic import CACHE, add, multiply, scale, subtract
from luminal.shape.bounds import lower_limit
from luminal.shape.condition import linear_form, negation, truth
from luminal.shape.evaluation import REBUILD, postorder
from luminal.shape.expression import CONDITION_OPS, FALSE, ONE, TRUE, ZERO, as_expression, const

if TYPE_CHECKING:
    from luminal.shape.expression import Expression, ExpressionLike

_STEPS = 48
"""Expressions tried for one inequality."""


def prove(cond: ExpressionLike, facts: Sequence[Expression] = ()) -> bool | None:
    """Does `cond` hold wherever the facts do? True, False, or None if that was not found out."""
    facts_apart = _flat(tuple(facts))
    return _prove(truth(as_expression(cond)), facts_apart)


def simplify(e: Expression, facts: Sequence[Expression] = ()) -> Expression:
    """An expression equal to `e` wherever the facts hold, with what they decide rewritten."""
    facts_apart = _flat(tuple(facts))
    return _simplify(e, facts_apart)


@lru_cache(CACHE)
def _flat(facts: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """The facts one by one, conjunctions taken apart."""
    result: dict[Expression, None] = {}
    for fact in facts:
        for part in fact.args if fact.op == "and" else (fact,):
            if part is not TRUE:
                result[part] = None
    return tuple(result)


@lru_cache(CACHE)
def _forms(facts: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """The sums that the facts say are >= 0."""
    forms = []
    for fact in facts:
        if fact.op in ("lt", "le"):
            forms.append(linear_form(fact))
        elif fact.op == "eq":
            forms += [linear_form(fact), scale(linear_form(fact), -1)]
    return tuple(forms)


@lru_cache(CACHE)
def _at_least(e: Expression, facts: tuple[Expression, ...]) -> int | None:
    """The best integer found that e never goes below under the facts."""
    # The search of `lower_limit` is a bounded walk: each step replaces an atom by a bound or
    # cancels a term against a fact, and all of them go down, so whatever it finds is sound.
    lo = e.interval.lo
    limit = lower_limit(e, _forms(facts), _STEPS) if facts or len(e.terms) > 1 else lo
    if lo is None or limit is None:
        return lo if limit is None else limit
    return max(lo, limit)


@lru_cache(CACHE)
def _prove(cond: Expression, facts: tuple[Expression, ...]) -> bool | None:
    if cond.is_const:
        return cond.constant != 0
    if cond in facts:
        return True
    if negation(cond) in facts:
        return False
    if cond.op in ("and", "or"):
        return _prove_parts(cond, facts)
    form = linear_form(cond)
    lo = _at_least(form, facts)
    negative = _at_least(scale(form, -1), facts)
    # False means that it holds nowhere, so that is proved as well: -e > 0 where the facts hold.
    if cond.op in ("lt", "le"):
        if lo is not None and lo >= 0:
            return True
        return False if negative is not None and negative > 0 else None
    if (lo is not None and lo > 0) or (negative is not None and negative > 0):
        return cond.op == "ne"
    return cond.op == "eq" if lo == negative == 0 else None


def _prove_parts(cond: Expression, facts: tuple[Expression, ...]) -> bool | None:
    """An `and` is False if one part is, True if all are; an `or` the other way round."""
    decisive = cond.op == "or"
    answers = [_prove(part, facts) for part in cond.args]
    if decisive in answers:
        return decisive
    return None if None in answers else not decisive


@lru_cache(CACHE)
def _simplify(e: Expression, facts: tuple[Expression, ...]) -> Expression:
    rebuilt: dict[Expression, Expression] = {}
    for node in postorder(e):
        args = [rebuilt[arg] for arg in node.args]
        same = all(new is old for new, old in zip(args, node.args, strict=True))
        built = node if same else REBUILD[node.op](args)
        rebuilt[node] = _under_facts(built, facts)
    return rebuilt[e]


def _under_facts(node: Expression, facts: tuple[Expression, ...]) -> Expression:
    """Rewrite one node whose operands are simplified already."""
    if node.op in ("and", "or"):
        parts = [_under_facts(part, facts) for part in node.args]
        return REBUILD[node.op](parts)
    if node.op in CONDITION_OPS:
        answer = _prove(node, facts)
        return node if answer is None else (TRUE if answer else FALSE)
    if node.op in ("floordiv", "mod"):
        a, b = node.args
        quotient = _known_quotient(a, b, facts)
        if quotient is None:
            return node
        return quotient if node.op == "floordiv" else subtract(a, multiply(quotient, b))
    if node.op in ("min", "max"):
        return _fewer(node, facts)
    return node


def _known_quotient(
    a: Expression, b: Expression, facts: tuple[Expression, ...]
) -> Expression | None:
    """a // b where the facts leave one value."""
    if b.is_const and b.constant > 0:
        lo, negative = _at_least(a, facts), _at_least(scale(a, -1), facts)
        if lo is None or negative is None or lo // b.constant != -negative // b.constant:
            return None
        return const(lo // b.constant)
    smallest = _at_least(b, facts)
    if smallest is None or smallest < 1:
        return None
    if _holds(a, facts) and _holds(subtract(subtract(b, a), ONE), facts):
        return ZERO
    if _holds(subtract(const(-1), a), facts) and _holds(add(a, b), facts):
        return const(-1)
    return None


def _holds(e: Expression, facts: tuple[Expression, ...]) -> bool:
    """Do the facts make e >= 0 everywhere?"""
    lo = _at_least(e, facts)
    return lo is not None and lo >= 0


def _fewer(node: Expression, facts: tuple[Expression, ...]) -> Expression:
    """A min or max without the operands that the facts show never decide."""
    kept = list(node.args)
    for value in node.args:
        others = [other for other in kept if other is not value]
        sign = 1 if node.op == "min" else -1
        if any(_holds(scale(subtract(value, other), sign), facts) for other in others):
            kept = others
    return REBUILD[node.op](kept)

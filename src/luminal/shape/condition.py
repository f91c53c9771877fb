"""Conditions: comparisons normalised to one linear form, conjunctions and disjunctions.

Every comparison is `e >= 0` or `e == 0` for a sum `e` whose coefficients have no common divisor.
It is stored with its positive terms on one side, so that it reads well: `past + s <= 512`.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING

from luminal.base.errors import DimError
from luminal.shape.arithmetic import CACHE, add, scale, subtract
from luminal.shape.expression import CONDITION_OPS, FALSE, TRUE, Term, atom, const, sum_of_terms

if TYPE_CHECKING:
    from luminal.shape.expression import Expression


def less(a: Expression, b: Expression) -> Expression:
    """The condition a < b."""
    return non_negative(subtract(subtract(b, a), TRUE))


def less_equal(a: Expression, b: Expression) -> Expression:
    """The condition a <= b."""
    return non_negative(subtract(b, a))


def _reduced(terms: tuple[Term, ...], divisor: int) -> tuple[Term, ...]:
    return terms if divisor == 1 else tuple((m, c // divisor) for m, c in terms)


@lru_cache(CACHE)
def non_negative(e: Expression) -> Expression:
    """The condition e >= 0."""
    # The terms are a multiple of their divisor, so the constant counts in whole multiples: rounding
    # it down loses nothing, and 2*i + 1 >= 0 is i >= 0.
    divisor = gcd(*(c for _, c in e.terms)) or 1
    e = sum_of_terms(_reduced(e.terms, divisor), e.constant // divisor)
    lo, hi = e.interval
    if lo is not None and lo >= 0:
        return TRUE
    if hi is not None and hi < 0:
        return FALSE
    # What is never above 0 is at least 0 where it is 0.
    if hi == 0:
        return is_zero(e)
    whole = _without_quotient(e)
    if whole is not None:
        return non_negative(whole)
    constant = e.constant
    right, left = _sides(e.terms)
    if left and right and constant == -1:
        return atom("lt", (sum_of_terms(left, 0), sum_of_terms(right, 0)))
    if not left or (right and constant < 0):
        return atom("le", (sum_of_terms(left, -constant), sum_of_terms(right, 0)))
    return atom("le", (sum_of_terms(left, 0), sum_of_terms(right, constant)))


# A condition on a quotient tells its two digits apart; on the joint position it does not, and the
# two axes can be one long loop.
def _without_quotient(e: Expression) -> Expression | None:
    """The sum that is at least 0 where `e` is, which has a quotient by a literal:
    x // 3 + r >= 0 where x + 3 * r >= 0, and r - x // 3 >= 0 where 3 * r + 2 - x >= 0.
    """
    for quotient, sign in e.terms:
        if quotient.op == "floordiv" and abs(sign) == 1:
            x, divisor = quotient.args
            if divisor.is_const and divisor.constant > 0:
                rest = scale(subtract(e, scale(quotient, sign)), divisor.constant)
                rounded = const(divisor.constant - 1 if sign < 0 else 0)
                return add(add(scale(x, sign), rest), rounded)
    return None


def _sides(terms: tuple[Term, ...]) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """The positive terms, and the negative ones negated."""
    positive = tuple((m, c) for m, c in terms if c > 0)
    return positive, tuple((m, -c) for m, c in terms if c < 0)


@lru_cache(CACHE)
def is_zero(e: Expression) -> Expression:
    """The condition e == 0."""
    lo, hi = e.interval
    if (lo is not None and lo > 0) or (hi is not None and hi < 0):
        return FALSE
    if lo == hi == 0:
        return TRUE
    divisor = gcd(*(c for _, c in e.terms))
    # The terms add up to a multiple of the divisor, and so never to this.
    if e.constant % divisor:
        return FALSE
    e = sum_of_terms(_reduced(e.terms, divisor), e.constant // divisor)
    # e == 0 and -e == 0 are one condition, so the first term says which of them is written.
    if e.terms[0][1] < 0:
        e = scale(e, -1)
    left, right = _sides(e.terms)
    return atom("eq", (sum_of_terms(left, 0), sum_of_terms(right, -e.constant)))


def equal(a: Expression, b: Expression) -> Expression:
    """a == b as a condition."""
    return is_zero(subtract(a, b))


@lru_cache(CACHE)
def linear_form(comparison: Expression) -> Expression:
    """The e of a comparison: `e >= 0` for lt and le, `e == 0` for eq and ne."""
    left, right = comparison.args
    if comparison.op == "lt":
        return subtract(subtract(right, left), TRUE)
    return subtract(left, right) if comparison.op in ("eq", "ne") else subtract(right, left)


@lru_cache(CACHE)
def negation(c: Expression) -> Expression:
    """The condition that c does not hold."""
    c = truth(c)
    if c.op == "const":
        return FALSE if c.constant else TRUE
    if c.op in ("lt", "le"):  # of integers: not e >= 0 is e <= -1
        return non_negative(subtract(const(-1), linear_form(c)))
    if c.op == "ne":
        return atom("eq", c.args)
    if c.op == "and":
        return disjunction(tuple(negation(arg) for arg in c.args))
    if c.op == "or":
        return conjunction(tuple(negation(arg) for arg in c.args))
    return _not_zero(linear_form(c), c)


def _not_zero(e: Expression, equality: Expression) -> Expression:
    """e != 0: at an end of e's interval an order comparison, which says more to the prover."""
    lo, hi = e.interval
    if lo == 0:
        return non_negative(subtract(e, TRUE))
    if hi == 0:
        return non_negative(subtract(const(-1), e))
    return atom("ne", equality.args)


def truth(value: Expression) -> Expression:
    """A condition as it is; any other value x as x != 0."""
    if value.op in CONDITION_OPS:
        return value
    if value.op == "const":
        return TRUE if value.constant else FALSE
    return negation(is_zero(value))


def conjunction(conditions: tuple[Expression, ...]) -> Expression:
    """The condition that all of the conditions hold: flat, sorted, with the tightest alone of
    comparable bounds.
    """
    return _join("and", conditions)


def disjunction(conditions: tuple[Expression, ...]) -> Expression:
    """Any of the conditions."""
    return _join("or", conditions)


def _join(op: str, conditions: tuple[Expression, ...]) -> Expression:
    # Sorted and flat, so that equal conjunctions are one object however they were put together.
    absorbing, neutral = (FALSE, TRUE) if op == "and" else (TRUE, FALSE)
    parts: dict[Expression, None] = {}
    for condition in conditions:
        part = truth(condition)
        for inner in part.args if part.op == op else (part,):
            if inner is absorbing:
                return absorbing
            if inner is not neutral:
                parts[inner] = None
    if len(parts) < 2:
        return next(iter(parts), neutral)
    kept = _tightest(op, list(parts))
    if kept is None:
        return absorbing
    if len(kept) == 1:
        return kept[0]
    return atom(op, tuple(sorted(kept, key=lambda c: c.sort_key)))


def _tightest(op: str, parts: list[Expression]) -> list[Expression] | None:
    """The conditions without those that others imply: of several `t + n >= 0` with the same t one
    is kept; None if two parts contradict (or cover all).
    """
    # Conditions of one linear form t differ by a constant only, so of all bounds on t the tightest
    # says everything, and two that exclude each other decide the whole.
    sign = 1 if op == "and" else -1
    bounds: dict[tuple[Term, ...], int] = {}
    others: list[Expression] = []
    for part in parts:
        if part.op not in ("lt", "le"):
            others.append(part)
            continue
        form = linear_form(part)
        tightest = bounds.get(form.terms)
        if tightest is None or sign * form.constant < sign * tightest:
            bounds[form.terms] = form.constant
    for terms, constant in bounds.items():
        opposite = bounds.get(tuple((m, -c) for m, c in terms))
        if opposite is None:
            continue
        if (constant + opposite < 0) if op == "and" else (constant + opposite >= -1):
            return None
    if any(negation(other) in others for other in others):
        return None
    return [*others, *(non_negative(sum_of_terms(t, c)) for t, c in bounds.items())]


def decided(c: Expression) -> bool:
    """`bool()` of a condition that intervals left open: always DimError."""
    if c.op not in CONDITION_OPS:
        raise DimError(
            f"the truth of {c} is not known; compare it with something, or evaluate it with "
            "the values of its dims"
        )
    ranges = ", ".join(
        f"{s.name} in {s.lo}..{s.hi}" for s in sorted(c.symbols(), key=lambda s: s.sort_key)
    )
    raise DimError(
        f"{c} is not decided by {ranges}; declare the dim's interval so that it is, "
        'for example cx.dim("s", 1, 512), or cx.require(...) it'
    )

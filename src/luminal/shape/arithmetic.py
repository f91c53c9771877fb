"""Sums, products, minima and maxima of Expressions in canonical form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from luminal.shape.expression import ONE, ZERO, Term, atom, const, sum_of_terms

if TYPE_CHECKING:
    from luminal.shape.expression import Expression, Symbol

CACHE = 1 << 15
"""Entries of each operator's memo: some compilations' worth, a few tens of MB at most."""
_EXPAND = 32
"""Products of sums are multiplied out up to this many terms."""


def _term_key(term: Term) -> tuple[object, ...]:
    return term[0].sort_key


def collect(terms: dict[Expression, int], constant: int) -> Expression:
    """The canonical sum of monomials with coefficients (zeros allowed)."""
    if 0 in terms.values():
        terms = {m: c for m, c in terms.items() if c}
    if len(terms) > 1 and _recombine(terms):
        # What has joined may meet other terms, and is collected once more.
        parts = [scale(m, c) for m, c in terms.items() if c]
        return add_all([*parts, const(constant)])
    if len(terms) > 1:
        return sum_of_terms(tuple(sorted(terms.items(), key=_term_key)), constant)
    return sum_of_terms(tuple(terms.items()), constant)


def _recombine(terms: dict[Expression, int]) -> bool:
    """(x // b)*b + x % b -> x, times any common factor, in place; did anything change?"""
    changed = False
    for monomial in [m for m in terms if m.op in ("mod", "mul")]:
        for factor in monomial.args if monomial.op == "mul" else (monomial,):
            if factor.op == "mod" and monomial in terms:
                changed |= _recombine_one(terms, monomial, factor)
    return changed


def _recombine_one(terms: dict[Expression, int], monomial: Expression, rest: Expression) -> bool:
    x, b = rest.args
    # By 0 both quotient and remainder are 0, and x would be lost.
    if not division.is_positive(b, x) and not b.interval.at_most(-1):
        return False
    others = divide_monomial(monomial, rest)
    assert others is not None
    partner = multiply(multiply(division.floordiv(x, b), b), others)
    # The quotient may be a sum itself: all of its terms
    # must be there, as often as the remainder is.
    count = terms[monomial]
    if partner.constant or not partner.terms or any(m is monomial for m, _ in partner.terms):
        return False
    if any(terms.get(m) != c * count for m, c in partner.terms):
        return False
    for whole, _ in partner.terms:
        del terms[whole]
    del terms[monomial]
    joined = multiply(x, others)
    for m, c in joined.terms:
        terms[m] = terms.get(m, 0) + c * count
    if joined.constant:
        terms[ONE] = terms.get(ONE, 0) + joined.constant * count
    return True


@lru_cache(CACHE)
def add(a: Expression, b: Expression) -> Expression:
    """The canonical form of a + b."""
    if not a._terms and a._terms is not None and a.constant == 0:
        return b
    terms = dict(a.terms)
    for monomial, factor in b.terms:
        terms[monomial] = terms.get(monomial, 0) + factor
    return collect(terms, a.constant + b.constant)


@lru_cache(CACHE)
def subtract(a: Expression, b: Expression) -> Expression:
    """The canonical form of a - b."""
    terms = dict(a.terms)
    for monomial, factor in b.terms:
        terms[monomial] = terms.get(monomial, 0) - factor
    return collect(terms, a.constant - b.constant)


def add_all(values: Sequence[Expression]) -> Expression:
    """The sum of many values."""
    terms: dict[Expression, int] = {}
    constant = 0
    for value in values:
        constant += value.constant
        for monomial, factor in value.terms:
            terms[monomial] = terms.get(monomial, 0) + factor
    return collect(terms, constant)


def scale(a: Expression, factor: int) -> Expression:
    """a times an integer."""
    if factor == 1:
        return a
    if factor == 0:
        return ZERO
    return sum_of_terms(tuple((m, c * factor) for m, c in a.terms), a.constant * factor)


@lru_cache(CACHE)
def multiply(a: Expression, b: Expression) -> Expression:
    """a * b, multiplied out when both sides are small."""
    if b.op == "const":
        return scale(a, b.constant)
    if a.op == "const":
        return scale(b, a.constant)
    left = (*a.terms, (ONE, a.constant)) if a.constant else a.terms
    right = (*b.terms, (ONE, b.constant)) if b.constant else b.terms
    # Multiplied out, equal polynomials are one object; of long ones that costs more than it gives.
    if len(left) * len(right) > _EXPAND:
        return _product_of_sums(a, b)
    products = [scale(_monomial(m, n), c * d) for m, c in left for n, d in right]
    return products[0] if len(products) == 1 else add_all(products)


def _product_of_sums(a: Expression, b: Expression) -> Expression:
    """A long product stays a product; integer content goes to the coefficient."""
    factor = 1
    factors: list[Expression] = []
    for side in (a, b):
        if len(side.terms) == 1 and not side.constant:
            monomial, count = side.terms[0]
            factor *= count
            factors.extend(factors_of(monomial))
        else:
            factors.append(side)
    return scale(product_of_factors(factors), factor)


def factors_of(monomial: Expression) -> tuple[Expression, ...]:
    """The atoms of a monomial; none for 1."""
    if monomial is ONE:
        return ()
    return monomial.args if monomial.op == "mul" else (monomial,)


def product_of_factors(factors: Sequence[Expression]) -> Expression:
    """The monomial with these atoms."""
    if len(factors) < 2:
        return factors[0] if factors else ONE
    return atom("mul", tuple(sorted(factors, key=lambda f: f.sort_key)))


@lru_cache(CACHE)
def _monomial(a: Expression, b: Expression) -> Expression:
    return product_of_factors((*factors_of(a), *factors_of(b)))


@lru_cache(CACHE)
def divide_monomial(monomial: Expression, divisor: Expression) -> Expression | None:
    """The monomial without the divisor's atoms, or None if one is missing."""
    left = list(factors_of(monomial))
    for factor in factors_of(divisor):
        if factor not in left:
            return None
        left.remove(factor)
    return product_of_factors(left)


@lru_cache(CACHE)
def exact_div(a: Expression, divisor: Expression) -> Expression | None:
    """q with a == q * divisor as polynomials, or None (always for divisor 0)."""
    if divisor is ZERO:
        return None
    quotient, rest = division.split(a, divisor)
    return quotient if rest is ZERO else None


@lru_cache(CACHE)
def coefficient(a: Expression, symbol: Symbol) -> Expression | None:
    """The factor of `symbol` if `a` is affine in it."""
    parts: list[Expression] = []
    for monomial, count in a.terms:
        if symbol not in monomial.symbols():
            continue
        # Squared, or inside of another atom such as a quotient, it has no factor.
        rest = divide_monomial(monomial, symbol)
        if rest is None or symbol in rest.symbols():
            return None
        parts.append(scale(rest, count))
    return add_all(parts)


@lru_cache(CACHE)
def extreme(op: str, values: tuple[Expression, ...]) -> Expression:
    """The min or max of several values: flat, sorted, without the values that never decide."""
    kept: list[Expression] = []
    for value in values:
        for candidate in value.args if value.op == op else (value,):
            if not any(_is_as_extreme(op, other, candidate) for other in kept):
                kept = [other for other in kept if not _is_as_extreme(op, candidate, other)]
                kept.append(candidate)
    if len(kept) == 1:
        return kept[0]
    return atom(op, tuple(sorted(kept, key=lambda v: v.sort_key)))


def _is_as_extreme(op: str, winner: Expression, loser: Expression) -> bool:
    """Is `winner` at least as extreme as `loser` for all values of the symbols?"""
    difference = subtract(loser, winner) if op == "min" else subtract(winner, loser)
    return difference.interval.at_least(0)


# A sum joins (x // b)*b + x % b, and division works with sums: the rest of the cycle comes last.
from luminal.shape import division  # noqa: E402

"""Exact simplification of floor division and modulo.

Throughout, `a = q*b + r` is an identity of polynomials, and b is proved positive where a rule
needs it. Division and modulo by zero give 0.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING

from luminal.shape.arithmetic import (
    CACHE,
    add,
    collect,
    divide_monomial,
    factors_of,
    multiply,
    product_of_factors,
    scale,
    subtract,
)
from luminal.shape.expression import ONE, ZERO, atom, const

if TYPE_CHECKING:
    from luminal.shape.expression import Expression

_MAX_STEPS = 16
"""Steps of the division by a sum before it gives up."""


def _truncated(a: int, b: int) -> int:
    """a / b rounded towards zero: leaves a remainder with the sign of a."""
    # Rounded down, -i would be 3*i - 4*i by 4.
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


@lru_cache(CACHE)
def split(a: Expression, b: Expression) -> tuple[Expression, Expression]:
    """(q, r) with a == q*b + r as polynomials and r without multiples of b; b is not 0."""
    if b.op == "const":
        return _split_by_integer(a, b.constant)
    if len(b.terms) == 1 and not b.constant:
        return _split_by_monomial(a, *b.terms[0])
    return _split_by_sum(a, b)


def _split_by_integer(a: Expression, b: int) -> tuple[Expression, Expression]:
    quotient: dict[Expression, int] = {}
    rest: dict[Expression, int] = {}
    for monomial, factor in a.terms:
        quotient[monomial] = _truncated(factor, b)
        rest[monomial] = factor - quotient[monomial] * b
    return collect(quotient, a.constant // b), collect(rest, a.constant % b)


def _split_by_monomial(
    a: Expression, monomial: Expression, factor: int
) -> tuple[Expression, Expression]:
    quotient: Expression = ZERO
    rest: dict[Expression, int] = {}
    for term, count in a.terms:
        part = divide_monomial(term, monomial)
        whole = 0 if part is None else _truncated(count, factor)
        if part is not None and whole:
            quotient = add(quotient, scale(part, whole))
        rest[term] = count - whole * factor
    return quotient, collect(rest, a.constant)


def _split_by_sum(a: Expression, b: Expression) -> tuple[Expression, Expression]:
    """Polynomial division by the term of highest degree; kept only if it makes `a` shorter."""
    lead, lead_factor = max(b.terms, key=lambda term: len(factors_of(term[0])))
    quotient: Expression = ZERO
    rest = a
    for _ in range(_MAX_STEPS):
        step = _leading_quotient(rest, lead, lead_factor)
        if step is None:
            break
        quotient = add(quotient, step)
        rest = subtract(rest, multiply(step, b))
    # Else both parts are longer than what they came from, and rewriting might never end.
    if len(rest.terms) < len(a.terms):
        return quotient, rest
    return ZERO, a


def _leading_quotient(a: Expression, lead: Expression, lead_factor: int) -> Expression | None:
    for monomial, factor in a.terms:
        part = divide_monomial(monomial, lead)
        whole = _truncated(factor, lead_factor)
        if part is not None and whole:
            return scale(part, whole)
    return None


def is_positive(b: Expression, a: Expression) -> bool:
    """Is b > 0: by its interval, or since an axis in `a` has a position below a multiple of b?"""
    # Where an axis has a position at all, its extent is at least 1, and so is what divides that and
    # is not negative; where it has none, nobody reads the quotient.
    if b.interval.at_least(1) or not b.interval.at_least(0):
        return b.interval.at_least(1)
    extents = (s.extent for s in a.symbols())
    return any(extent is not None and split(extent, b)[1] is ZERO for extent in extents)


def _period(a: Expression, b: Expression) -> Expression | None:
    """The k with k*b <= a < (k+1)*b, where it is one known integer; b > 0."""
    if b.op == "const":
        lo, hi = a.interval
        if lo is None or hi is None or lo // b.constant != hi // b.constant:
            return None
        return const(lo // b.constant)
    # By the interval of the difference: that i < n is known of n - i, not of two intervals.
    if a.interval.at_least(0) and subtract(b, a).interval.at_least(1):
        return ZERO
    if a.interval.at_most(-1) and add(a, b).interval.at_least(0):
        return const(-1)
    return None


def _content(a: Expression) -> tuple[int, list[Expression]]:
    """The integer and the atoms that divide every term of `a`."""
    if a.constant:
        return gcd(a.constant, *(c for _, c in a.terms)), []
    shared = list(factors_of(a.terms[0][0]))
    for monomial, _ in a.terms[1:]:
        left = list(factors_of(monomial))
        kept = []
        for factor in shared:
            if factor in left:
                left.remove(factor)
                kept.append(factor)
        shared = kept
    return gcd(*(c for _, c in a.terms)), shared


def _common_factor(a: Expression, b: Expression) -> Expression:
    """A positive factor of both, or 1; a and b are not 0."""
    if b.op == "const":
        return const(gcd(a.constant, b.constant, *(c for _, c in a.terms)))
    count, shared = _content(a)
    other_count, left = _content(b)
    common = []
    for factor in shared:
        # A factor that may be 0 makes a quotient 0 that is something else without the factor.
        if factor in left and is_positive(factor, a):
            left.remove(factor)
            common.append(factor)
    return scale(product_of_factors(common), gcd(count, other_count))


def _divisors(a: Expression, b: Expression) -> list[Expression]:
    """Positive factors g of b, other than 1 and b, that may split `a` in digits; largest first."""
    if b.op == "const":
        divisors = {gcd(b.constant, c) for _, c in a.terms} - {1, b.constant}
        return [const(g) for g in sorted(divisors, reverse=True)]
    count, atoms = _content(b)
    products: list[Expression] = [ONE]
    # Four atoms have 16 products.
    for factor in atoms[:4]:
        if is_positive(factor, a):
            products += [p for p in (multiply(q, factor) for q in products) if p not in products]
    if len(b.terms) > 1 or b.constant:
        primitive = split(b, scale(product_of_factors(atoms), count))[0]
        products += [multiply(q, primitive) for q in products]
    if count > 1:
        products += [scale(q, count) for q in products]
    return [g for g in reversed(products) if g is not ONE and g is not b]


def _digits(a: Expression, b: Expression) -> tuple[Expression, Expression, Expression] | None:
    """(g, x, y) with a == g*x + y, 0 <= y < g, g > 0 a proper factor of b."""
    for g in _divisors(a, b):
        x, y = split(a, g)
        if x is ZERO:
            continue
        shift = _period(y, g)
        if shift is not None:
            # A rest that is a digit but for whole multiples of g leaves these to x.
            return g, add(x, shift), subtract(y, multiply(shift, g))
    return None


def _quotient(b: Expression, g: Expression) -> Expression:
    """b / g for a g that divides it."""
    quotient, rest = split(b, g)
    assert rest is ZERO, f"{g} does not divide {b}"
    return quotient


@lru_cache(CACHE)
def floordiv(a: Expression, b: Expression) -> Expression:
    """The canonical form of floor(a / b), which is 0 for b = 0."""
    if b is ONE:
        return a
    if a is ZERO or b is ZERO:
        return ZERO
    if b.interval.at_most(-1):
        return floordiv(scale(a, -1), scale(b, -1))
    # All rules from here on are for b > 0.
    if not is_positive(b, a):
        return atom("floordiv", (a, b))
    common = _common_factor(a, b)
    if common is not ONE:
        return floordiv(_quotient(a, common), _quotient(b, common))
    # Multiples of b leave the floor. What is left may be known by its interval, or be g*x + y with
    # y < g, g a factor of b: a lower digit never carries, so (g*x + y) // (g*c) is x // c.
    whole, rest = split(a, b)
    if whole is not ZERO:
        return add(whole, floordiv(rest, b))
    quotient = _period(a, b)
    if quotient is not None:
        return quotient
    digits = _digits(a, b)
    if digits is not None:
        g, x, _ = digits
        return floordiv(x, _quotient(b, g))
    return _nested_floordiv(a, b)


def _nested_floordiv(a: Expression, b: Expression) -> Expression:
    """(x // y + n) // b -> (x + n*y) // (y*b);  (x % (m*b)) // b -> (x // b) % m."""
    if len(a.terms) == 1 and a.terms[0][1] == 1:
        inner = a.terms[0][0]
        if inner.op == "floordiv" and inner.args[1].interval.at_least(1):
            x, y = inner.args
            return floordiv(add(x, scale(y, a.constant)), multiply(y, b))
        if inner.op == "mod" and not a.constant:
            x, modulus = inner.args
            count, rest = split(modulus, b)
            if rest is ZERO and count.interval.at_least(1):
                return mod(floordiv(x, b), count)
    return atom("floordiv", (a, b))


@lru_cache(CACHE)
def mod(a: Expression, b: Expression) -> Expression:
    """The canonical form of a - b * floor(a / b), with the sign of b; 0 for b = 0."""
    if a is ZERO or b is ZERO or b is ONE:
        return ZERO
    if b.interval.at_most(-1):
        return scale(mod(scale(a, -1), scale(b, -1)), -1)
    if not is_positive(b, a):
        return atom("mod", (a, b))
    common = _common_factor(a, b)
    if common is not ONE:
        return multiply(common, mod(_quotient(a, common), _quotient(b, common)))
    rest = _without_inner_mod(split(a, b)[1], b)
    if rest is not a:
        return mod(rest, b)
    quotient = _period(a, b)
    if quotient is not None:
        return subtract(a, multiply(quotient, b))
    digits = _digits(a, b)
    if digits is not None:
        g, x, y = digits
        return add(multiply(g, mod(x, _quotient(b, g))), y)
    return atom("mod", (a, b))


def _without_inner_mod(a: Expression, b: Expression) -> Expression:
    """x % (m*b) -> x inside something taken modulo b."""
    for monomial, factor in a.terms:
        for inner in factors_of(monomial):
            # Both differ by multiples of m*b, times the integer beside them: by nothing modulo b.
            if inner.op == "mod" and split(inner.args[1], b)[1] is ZERO:
                # Modulo 0 is 0, not x.
                if not inner.args[1].interval.at_least(1):
                    continue
                others = divide_monomial(monomial, inner)
                assert others is not None
                change = subtract(inner.args[0], inner)
                return add(a, scale(multiply(change, others), factor))
    return a

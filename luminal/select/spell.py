"""Spellings that `fast` prefers: quotients leave sums that then run in one pass.

`Sum(K, (a / l) * v) -> Sum(K, a * v) / l` where l is free of K. In real arithmetic it is the same
value: class *rounding*. It pays where the new sum cascades (see `kernel.cascade`): then neither `a`
nor the quotient is ever stored.
"""

from __future__ import annotations

from luminal.algebra.lower import Lowered
from luminal.algebra.terms import Term, Terms, term_order
from luminal.select import cascades
from luminal.select.rewrite import rewrite
from luminal.select.weights import stored_anyway


def spell(lowered: Lowered) -> Lowered:
    """The same program with such quotients pulled out."""
    order = term_order(root.term for root in lowered.roots)
    wanted = {term for term in order if _quotient(term) is not None}
    if not wanted:
        return lowered
    spelled, new = _pulled_out(lowered, wanted)
    after = term_order(root.term for root in spelled.roots)
    found = cascades.find(after, stored_anyway(spelled.roots, after))
    in_pass = {member.term for each in found for member in each.cascade.members}
    useful = {term for term in wanted if new[term].args[0] in in_pass}
    return spelled if useful == wanted else _pulled_out(lowered, useful)[0]


def _quotient(term: Term) -> int | None:
    """Which factor of a sum of products is a quotient to pull out."""
    if term.op != "Sum" or term.args[0].op != "Mul":
        return None
    for k, factor in enumerate(term.args[0].args):
        if factor.op == "Div" and factor.args[1].axes <= term.axes:
            return k
    return None


def _pulled_out(lowered: Lowered, wanted: set[Term]) -> tuple[Lowered, dict[Term, Term]]:
    """The program with the quotients of these sums pulled out, and its terms by the old ones."""
    terms = lowered.terms
    return rewrite(lowered, lambda old, same: _pull_out(terms, same) if old in wanted else same)


def _pull_out(terms: Terms, term: Term) -> Term:
    k = _quotient(term)
    assert k is not None
    factors = list(term.args[0].args)
    numerator, denominator = factors[k].args
    factors[k] = numerator
    product = terms.pointwise("Mul", factors, term.dtype)
    total = terms.reduce("Sum", term.attrs, product)
    return terms.pointwise("Div", (total, denominator), term.dtype)

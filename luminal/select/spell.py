"""Spellings that `fast` prefers: quotients leave sums that then run in one pass.

`Sum(K, (a / l) * v) -> Sum(K, a * v) / l` where l is free of K. In real arithmetic it is the same
value: class *rounding*. It pays where the new sum cascades (see `kernel.cascade`): then neither `a`
nor the quotient is ever stored.
"""

from __future__ import annotations

from luminal.algebra.lower import Lowered, Root
from luminal.algebra.terms import Frame, Term, Terms, term_order
from luminal.select import cascades
from luminal.select.weights import stored_anyway


def spell(lowered: Lowered) -> Lowered:
    """The same program with such quotients pulled out."""
    order = term_order(root.term for root in lowered.roots)
    wanted = {term for term in order if _quotient(term) is not None}
    if not wanted:
        return lowered
    spelled, new = _pulled_out(lowered, order, wanted)
    after = term_order(root.term for root in spelled.roots)
    found = cascades.find(after, stored_anyway(spelled.roots, after))
    in_pass = {member.term for each in found for member in each.cascade.members}
    useful = {term for term in wanted if new[term].args[0] in in_pass}
    return spelled if useful == wanted else _pulled_out(lowered, order, useful)[0]


def _quotient(term: Term) -> int | None:
    """Which factor of a sum of products is a quotient to pull out."""
    if term.op != "Sum" or term.args[0].op != "Mul":
        return None
    for k, factor in enumerate(term.args[0].args):
        if factor.op == "Div" and factor.args[1].axes <= term.axes:
            return k
    return None


def _pulled_out(
    lowered: Lowered, order: list[Term], wanted: set[Term]
) -> tuple[Lowered, dict[Term, Term]]:
    """The program with the quotients of these sums pulled out, and its terms by the old ones."""
    terms, new = lowered.terms, dict[Term, Term]()
    shapes: dict[Term, Frame] = {}
    for term in order:
        same = terms.with_args(term, tuple(new[arg] for arg in term.args))
        new[term] = _pull_out(terms, same) if term in wanted else same
        if term in lowered.shapes:
            shapes[new[term]] = lowered.shapes[term]
            if term in wanted:  # the sum has the axes of the quotient
                shapes.setdefault(new[term].args[0], lowered.shapes[term])
    roots = tuple(Root(root.sink, new[root.term], root.frame) for root in lowered.roots)
    return Lowered(terms, roots, shapes, lowered.arguments), new


def _pull_out(terms: Terms, term: Term) -> Term:
    k = _quotient(term)
    assert k is not None
    factors = list(term.args[0].args)
    numerator, denominator = factors[k].args
    factors[k] = numerator
    product = terms.pointwise("Mul", factors, term.dtype)
    total = terms.reduce("Sum", term.attrs, product)
    return terms.pointwise("Div", (total, denominator), term.dtype)

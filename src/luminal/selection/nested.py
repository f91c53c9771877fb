"""Nested reductions whose inner one is a value of its own stay nested.

`Sum{a, b} x -> Sum{b} (Sum{a} x)` where the program has `Sum{a} x` as well. The algebra merges
nested reductions, which is right where only the outer one is needed; else all of `x` would be
reduced twice, or stored for both: for the mean of a matrix product's rows, every single product.
"""

from __future__ import annotations

from collections import defaultdict

from luminal.algebra.frames import upper
from luminal.algebra.reductions import around
from luminal.algebra.terms import Term, Terms
from luminal.selection.rewrite import Respelled


# The algebra merges Sum over Sum. Where the inner one is read by others as well, as the product
# below a layer norm's mean, merging makes two reductions of the products, and these are then
# stored: 16 million numbers of a product of 256 x 256.
def nest(program: Respelled) -> Respelled:
    """The program with reductions taken apart whose inner part is a value of its own."""
    inner = _inner(program.order())
    if not inner:
        return program
    terms = program.lowered.terms

    def replace(old: Term, same: Term) -> Term:
        return _nested(terms, old, same.args[0], inner) if old in inner else same

    return program.rewrite(replace)


def _inner(order: list[Term]) -> dict[Term, Term]:
    """The reduction of the same operand over most, but not all, of a reduction's axes, by that
    one.
    """
    alike: defaultdict[tuple[str, Term], list[Term]] = defaultdict(list)
    for term in order:
        if term.is_reduction:
            alike[term.op, term.args[0]].append(term)
    by_outer: dict[Term, Term] = {}
    for group in alike.values():
        for term in group if len(group) > 1 else ():
            # The largest part leaves least to do; its own parts are found in their turn.
            smaller = [other for other in group if around(other.attrs, term.attrs)]
            if smaller:
                by_outer[term] = max(smaller, key=lambda other: upper(other.attrs))
    return by_outer


def _nested(terms: Terms, term: Term, x: Term, inner: dict[Term, Term]) -> Term:
    """`term` of the new operand `x`, through the inner reductions."""
    below = inner.get(term)
    if below is None:
        return terms.reduce(term.op, term.attrs, x, merge=False)
    rest = around(below.attrs, term.attrs)
    assert rest is not None
    return terms.reduce(term.op, rest, _nested(terms, below, x, inner), merge=False)

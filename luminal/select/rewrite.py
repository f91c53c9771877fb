"""Other spellings of a lowered program: what the rules of `fast` share."""

from __future__ import annotations

from collections.abc import Callable

from luminal.algebra.lower import Lowered, Root
from luminal.algebra.terms import Frame, Term, term_order


def rewrite(
    lowered: Lowered, replace: Callable[[Term, Term], Term]
) -> tuple[Lowered, dict[Term, Term]]:
    """The program with each term replaced, operands first, and its terms by the old ones.

    `replace(old, same)` gives the new term, of the same value; `same` is `old` over new operands.
    """
    new: dict[Term, Term] = {}
    shapes: dict[Term, Frame] = {}
    for term in term_order(root.term for root in lowered.roots):
        same = lowered.terms.with_args(term, tuple(new[arg] for arg in term.args))
        new[term] = replace(term, same)
        if term in lowered.shapes:
            shapes[new[term]] = lowered.shapes[term]
    roots = tuple(Root(root.sink, new[root.term], root.frame) for root in lowered.roots)
    return Lowered(lowered.terms, roots, shapes, lowered.arguments), new

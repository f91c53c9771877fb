"""Other spellings of a lowered program: what the rules of `fast` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from luminal.algebra.lower import Lowered, Root
from luminal.algebra.terms import Frame, Term, term_order
from luminal.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Respelled:
    """A program and, by each term of the one it was made of, the equal term it has now.

    Terms that `same` lacks are spelled as before.
    """

    lowered: Lowered
    same: Mapping[Term, Term]

    def order(self) -> list[Term]:
        """Every term of the program, operands first."""
        return term_order(root.term for root in self.lowered.roots)

    def rewrite(self, replace: Callable[[Term, Term], Term]) -> Respelled:
        """The program with each term replaced, operands first.

        `replace(old, same)` gives the new term, of the same value; `same` is `old` over new
        operands.
        """
        lowered = self.lowered
        new: dict[Term, Term] = {}
        shapes: dict[Term, Frame] = {}
        for term in self.order():
            lowered.terms.recorded = term.recorded
            now = lowered.terms.with_args(term, tuple(new[arg] for arg in term.args))
            new[term] = replace(term, now)
            if term in lowered.shapes:
                shapes[new[term]] = lowered.shapes[term]
        lowered.terms.recorded = None
        roots = tuple(Root(root.sink, new[root.term], root.frame) for root in lowered.roots)
        same = {old: new[now] for old, now in self.same.items() if now in new}
        kept = frozenset(new[term] for term in lowered.kept)
        spelled = Lowered(lowered.terms, roots, shapes, lowered.arguments, kept)
        return Respelled(spelled, {**new, **same})

"""States that a Scatter may overwrite where they lie."""

from __future__ import annotations

from collections.abc import Iterable

from luminal.algebra.lower import Root
from luminal.algebra.terms import Term
from luminal.hlir.state import State
from luminal.program.selection import Selection
from luminal.program.steps import state_of


def updates(selection: Selection, root: Root, state: State) -> bool:
    """Can the State be overwritten in place: a Scatter into its own old value, which nobody who
    depends on the new value still reads?
    """
    term = root.term
    if term.op != "Scatter" or not term.args[0].is_leaf:
        return False
    if state_of(term.args[0]) is not state or root.frame != term.attrs.result:
        return False
    if term.args[0].attrs.frame != term.attrs.frames[0]:
        return False
    after: set[Term] = {term}
    for user in selection.choices:
        if not after.isdisjoint(user.args):
            after.add(user)
    for user in after:
        stored = user is not term and selection.is_stored(user)
        if stored and term.args[0] in inlined(selection, user.args):
            return False
    return term.args[0] not in inlined(selection, term.args[1:])


def inlined(selection: Selection, roots: Iterable[Term]) -> set[Term]:
    """The terms that a kernel computing `roots` reads or computes."""
    seen: set[Term] = set()
    stack = list(roots)
    while stack:
        term = stack.pop()
        if term not in seen:
            seen.add(term)
            stack.extend(() if selection.is_stored(term) else term.args)
    return seen

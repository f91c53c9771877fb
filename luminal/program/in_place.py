"""States that a Scatter may overwrite where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from luminal.algebra.lower import Root
from luminal.algebra.terms import Term
from luminal.hlir.state import State
from luminal.program.selection import Selection
from luminal.program.steps import state_of

Users = Mapping[Term, Sequence[Term]]


def updates(selection: Selection, users: Users, root: Root, state: State) -> bool:
    """Can the State be overwritten in place: a Scatter into its own old value, which nobody who
    depends on the new value still reads?
    """
    term = root.term
    if term.op != "Scatter" or not term.args[0].is_leaf:
        return False
    old = term.args[0]
    if state_of(old) is not state or root.frame != term.attrs.result:
        return False
    if old.attrs.frame != term.attrs.frames[0] or old in term.args[1:]:
        return False
    readers = _kernels_reading(selection, users, old)
    for merge in selection.merges:
        if not readers.isdisjoint(merge):
            readers |= merge
    return not any(_depends(reader, term) for reader in readers) and not (
        _inlines(selection, term.args[1:], old)
    )


def _kernels_reading(selection: Selection, users: Users, leaf: Term) -> set[Term]:
    """The stored terms whose kernels read a leaf."""
    found: set[Term] = set()
    seen: set[Term] = set()
    stack = [*users[leaf]]
    while stack:
        user = stack.pop()
        if selection.is_stored(user):
            found.add(user)
        elif user not in seen:
            seen.add(user)
            stack.extend(users[user])
    return found


def _depends(term: Term, wanted: Term) -> bool:
    """Is `wanted` below `term` (not the same)?"""
    seen: set[Term] = set()
    stack = [*term.args]
    while stack:
        below = stack.pop()
        if below is wanted:
            return True
        if below not in seen:
            seen.add(below)
            stack.extend(below.args)
    return False


def _inlines(selection: Selection, roots: Iterable[Term], leaf: Term) -> bool:
    """Does a kernel that computes `roots` read the leaf?"""
    seen: set[Term] = set()
    stack = list(roots)
    while stack:
        term = stack.pop()
        if term is leaf:
            return True
        if term not in seen and not selection.is_stored(term):
            seen.add(term)
            stack.extend(term.args)
    return False

"""States that a Scatter may overwrite where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.algebra.lower import Root
from luminal.algebra.terms import Term, below
from luminal.program.selection import Selection

Users = Mapping[Term, Sequence[Term]]


def updates(selection: Selection, users: Users, root: Root, old: Term) -> bool:
    """Can a leaf be overwritten in place: is `root` a Scatter into `old`, which nobody who depends
    on the new value still reads?
    """
    term = root.term
    if term.op != "Scatter" or term.args[0] is not old or not old.is_leaf:
        return False
    if root.frame != term.attrs.result or old.attrs.frame != term.attrs.frames[0]:
        return False
    if old in term.args[1:] or not is_read_before(selection, users, old, frozenset((term,))):
        return False
    return old not in below(term.args[1:], selection.is_stored)


def is_read_before(selection: Selection, users: Users, leaf: Term, makers: frozenset[Term]) -> bool:
    """Can all kernels that read a leaf run before what `makers` compute is there?"""
    readers = _kernels_reading(selection, users, leaf)
    for merge in selection.merges:
        if not readers.isdisjoint(merge):
            readers |= merge
    first = min(term.id for term in makers)  # operands have smaller numbers than their users
    below_readers = (below(r.args, lambda t: t.id < first).keys() for r in readers - makers)
    return all(makers.isdisjoint(found) for found in below_readers)


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


def calls_python(selection: Selection) -> bool:
    """Does the program run a Python function, so that a run may end half-way with an error?

    No State is overwritten then: it keeps its value until the whole run has succeeded.
    """
    return any(t.op == "Custom" and t.attrs.hlir.kernel.ir is None for t in selection.choices) or (
        any(map(calls_python, selection.bodies.values()))
    )

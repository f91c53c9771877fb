"""States that a Scatter may overwrite where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from luminal.algebra.lower import Root
from luminal.algebra.terms import Term, below
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
    if any(term in below(reader.args) for reader in readers):
        return False
    return old not in below(term.args[1:], selection.is_stored)


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

"""What reads each term: selection asks it wherever a value may leave memory or a kernel."""

from __future__ import annotations

from collections.abc import Iterable

from luminal.algebra.terms import Term


def users_of(order: Iterable[Term]) -> dict[Term, list[Term]]:
    """The terms that read each one, once each, in order; an empty list for what nobody reads."""
    order = [*order]
    users: dict[Term, list[Term]] = {term: [] for term in order}
    for term in order:
        for arg in dict.fromkeys(term.args):
            users[arg].append(term)
    return users

"""Which cascaded reductions `fast` runs in one pass (see `kernel.cascade`), and in whose kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from luminal.algebra.terms import Term
from luminal.kernel.cascade import Cascade, derive, lane_axis
from luminal.select.weights import upper

LANES = 8  # fewer results side by side than this do not fill vectors
MAX_ROOTS = 4

Users = Mapping[Term, Sequence[Term]]


@dataclass(frozen=True, slots=True)
class Pass:
    """A cascade, the pointwise values between its results and its roots, and the roots: the values
    that its kernel stores.
    """

    cascade: Cascade
    inner: frozenset[Term]
    roots: tuple[Term, ...]

    @property
    def terms(self) -> frozenset[Term]:
        """All that is computed in the pass: it can belong to no other one."""
        return self.inner.union(self.roots, self.cascade.scope, self.cascade.reductions)


def find(order: Sequence[Term], forced: set[Term]) -> tuple[Pass, ...]:
    """The cascades whose results leave the pass only through a few pointwise values.

    Nothing outside may need what depends on the contractions per step: it is never stored.
    """
    users: dict[Term, list[Term]] = {term: [] for term in order}
    for term in order:
        for arg in dict.fromkeys(term.args):
            users[arg].append(term)
    found: list[Pass] = []
    taken: set[Term] = set()
    for maximum in order:
        if maximum.op != "Max":
            continue
        near = _reductions_above(maximum, users)
        cascade = derive(maximum, near, lambda t: t.is_leaf or t.is_opaque)
        if cascade is None:
            continue
        lane = lane_axis(cascade)
        if lane is None or upper((lane,)) < LANES or not _closed(cascade, users, forced):
            continue
        one_pass = _through_roots(cascade, users, forced, order)
        if one_pass is not None and taken.isdisjoint(one_pass.terms):
            found.append(one_pass)
            taken |= one_pass.terms
    return tuple(found)


def _reductions_above(term: Term, users: Users) -> list[Term]:
    """The first reductions above a term, in the order of their making."""
    found: set[Term] = set()
    seen: set[Term] = set()
    stack = [*users[term]]
    while stack:
        user = stack.pop()
        if user.is_reduction:
            found.add(user)
        elif user not in seen and not user.is_opaque:
            seen.add(user)
            stack.extend(users[user])
    return sorted(found, key=lambda t: t.id)


def _closed(cascade: Cascade, users: Users, forced: set[Term]) -> bool:
    allowed = cascade.scope | set(cascade.reductions)
    return all(term not in forced and allowed.issuperset(users[term]) for term in cascade.scope)


def _through_roots(
    cascade: Cascade, users: Users, forced: set[Term], order: Sequence[Term]
) -> Pass | None:
    """The pointwise values computed of the results, as far up as their axes do not grow."""
    results = {cascade.maximum, *(m.term for m in cascade.members)}
    axes = frozenset[object]().union(*(result.axes for result in results))
    after: dict[Term, None] = {}
    beyond: set[Term] = set()  # depends on the results through what is no part of the pass
    for term in order:
        if term in results or term in cascade.scope:
            continue
        if not beyond.isdisjoint(term.args):
            beyond.add(term)
        elif any(arg in results or arg in after for arg in term.args):
            if term.is_pointwise and term.axes <= axes:
                after[term] = None
            else:
                beyond.add(term)
    leaving = {user for term in (*results, *after) for user in users[term]} & beyond
    roots = tuple(t for t in after if t in forced or not leaving.isdisjoint(users[t]))
    direct = results & forced or any(not leaving.isdisjoint(users[r]) for r in results)
    if direct or not 0 < len(roots) <= MAX_ROOTS:
        return None
    return Pass(cascade, frozenset(after) - set(roots), roots)

"""Which cascaded reductions `fast` runs in one pass (see `kernel.cascade`), and in whose kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from luminal.algebra.terms import Term
from luminal.kernel.cascade import Cascade, Refusal, derive, lane_axis
from luminal.select.weights import MUCH_WORK, upper

LANES = 32  # positions of the lane axis that are worked on together
MIN_POINTS = 2  # blocks below which a long pass would leave threads idle
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
    """The cascades whose results leave the pass only through a few pointwise values."""
    return examine(order, forced)[0]


def examine(
    order: Sequence[Term], forced: set[Term]
) -> tuple[tuple[Pass, ...], tuple[Refusal, ...]]:
    """The cascades, and why other maxima have none.

    Nothing outside may need what depends on the contractions per step: it is never stored.
    """
    users: dict[Term, list[Term]] = {term: [] for term in order}
    for term in order:
        for arg in dict.fromkeys(term.args):
            users[arg].append(term)
    found: list[Pass] = []
    refused: list[Refusal] = []
    taken: set[Term] = set()
    for maximum in order:
        if maximum.op != "Max":
            continue
        near = _reductions_above(maximum, users)
        each: Pass | Refusal | Cascade
        each = derive(maximum, near, lambda t: t.is_leaf or t.is_opaque)
        if isinstance(each, Cascade):
            each = _judged(each, users, forced, order, taken)
        if isinstance(each, Pass) and not taken.isdisjoint(each.terms):
            each = Refusal(maximum, "another pass computes a part of it")
        if isinstance(each, Refusal):
            refused.append(each)
        else:
            found.append(each)
            taken |= each.terms
    return tuple(found), tuple(refused)


def _judged(
    cascade: Cascade, users: Users, forced: set[Term], order: Sequence[Term], taken: set[Term]
) -> Pass | Refusal:
    """The pass of a cascade that can be a kernel and has enough to do side by side."""
    maximum = cascade.maximum
    lane = lane_axis(cascade)
    apart = upper(maximum.axes - {lane}) * -(-upper(maximum.axes & {lane}) // LANES)
    if apart < MIN_POINTS and upper((*maximum.axes, *maximum.attrs)) > MUCH_WORK:
        return Refusal(maximum, f"only {apart} blocks side by side would leave threads idle")
    outside = _needed_outside(cascade, users, forced)
    if outside is not None:
        return Refusal(maximum, f"{outside!r}, a value per step, is needed outside of the pass")
    products = {r.args[0] for r in cascade.reductions if r.args[0].op == "Mul"}
    if not forced.isdisjoint(products):
        return Refusal(maximum, "a product that the pass sums is stored")
    barred: set[Term] = set()
    if not taken.isdisjoint(_dependents(order, {m.term for m in cascade.members})):
        barred = _dependents(order, taken)  # an earlier pass reads this one, which waits for none
    return _through_roots(cascade, users, forced, order, barred)


def _dependents(order: Sequence[Term], terms: set[Term]) -> set[Term]:
    """The terms and all that depends on them."""
    found = set(terms)
    for term in order:
        if not found.isdisjoint(term.args):
            found.add(term)
    return found


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


def _needed_outside(cascade: Cascade, users: Users, forced: set[Term]) -> Term | None:
    """A term of the pass that something else needs at every step."""
    allowed = cascade.scope | set(cascade.reductions)
    for term in sorted(cascade.scope, key=lambda t: t.id):
        if term in forced or not allowed.issuperset(users[term]):
            return term
    return None


def _through_roots(
    cascade: Cascade, users: Users, forced: set[Term], order: Sequence[Term], barred: set[Term]
) -> Pass | Refusal:
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
            if term.is_pointwise and term.axes <= axes and term not in barred:
                after[term] = None
            else:
                beyond.add(term)
    leaving = {user for term in (*results, *after) for user in users[term]} & beyond
    ends = [t for t in (*results, *after) if t in forced or not leaving.isdisjoint(users[t])]
    roots = tuple(sorted(ends, key=lambda t: t.id))
    if not 0 < len(roots) <= MAX_ROOTS:
        return Refusal(cascade.maximum, f"{len(roots)} results; a kernel stores 1 to {MAX_ROOTS}")
    return Pass(cascade, frozenset(after) - set(roots), roots)

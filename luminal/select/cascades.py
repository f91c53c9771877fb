"""Which cascaded reductions `fast` runs in one pass (see `kernel.cascade`), and in whose kernel."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from luminal.algebra.frames import upper
from luminal.algebra.terms import At, Phase, Reduction, Term
from luminal.costs import Shares
from luminal.forks import cached_property
from luminal.hlir.monoid import MAXIMUM
from luminal.kernel.cascade import Cascade, Refusal, derive, in_each_step, lane_axis
from luminal.program.kernel_graph import KernelGraph
from luminal.select.limits import REACH

MAX_ROOTS = 4
ABOVE = 300  # terms that depend on a maximum, among which its pass is looked for


@dataclass(frozen=True, slots=True)
class Pass:
    """A cascade, what it computes in each `step`, the pointwise values between its results and its
    roots, and the roots: the values that its kernel stores.
    """

    cascade: Cascade
    step: frozenset[Term]
    inner: frozenset[Term]
    roots: tuple[Term, ...]

    @property
    def terms(self) -> frozenset[Term]:
        """All that is computed in the pass: it can belong to no other one."""
        return self.inner.union(self.roots, self.step, self.cascade.reductions)


def find(
    order: Sequence[Term],
    forced: set[Term],
    shares: Shares,
    among: Set[Term] | None = None,
) -> tuple[Pass, ...]:
    """The cascades whose results leave the pass only through a few pointwise values; those of the
    maxima `among` a set, if that is given.

    Nothing outside may need what depends on the contractions per step: it is never stored. A pass
    is one kernel, so no other may stand between its parts (see `program.kernel_graph`).
    """
    wanted = order if among is None else [term for term in order if term in among]
    maxima = [t for t in wanted if isinstance(t, Reduction) and t.monoid is MAXIMUM]
    if not maxima:
        return ()
    near = _Neighbours(order, forced, shares)
    return tuple(p for p in map(near.pass_of, maxima) if isinstance(p, Pass))


class _Neighbours:
    """What stands around each maximum, and the passes found so far."""

    def __init__(self, order: Sequence[Term], forced: set[Term], shares: Shares) -> None:
        self.order = order
        self.shares = shares
        self.forced = forced
        self.users: dict[Term, list[Term]] = {term: [] for term in order}
        for term in order:
            for arg in dict.fromkeys(term.args):
                self.users[arg].append(term)
        self.taken: set[Term] = set()
        self.stored = _moved(order, forced).union(t for t in order if t.is_leaf or t.is_opaque)

    @cached_property
    def graph(self) -> KernelGraph:
        """Of the single terms, those of a pass merged."""
        return KernelGraph({term: term.args for term in self.order})

    def pass_of(self, maximum: Reduction) -> Pass | Refusal:
        above = self.above(maximum)
        near = _nearest(maximum, above)

        stored, is_run = self.stored, maximum.is_run

        def is_read(term: Term) -> bool:
            # What the other side of prologue and run computes
            # lies in memory: a kernel is of one of them.
            return term in stored or (term.phase is Phase.RUN) is not is_run

        cascade = derive(maximum, near, set(above), is_read)
        if isinstance(cascade, Refusal):
            return cascade
        step = in_each_step(cascade, is_read)
        refusal = self._refused(cascade, step)
        if refusal is not None:
            return refusal
        # With what is computed of the results, if that can be one kernel; else another reads them.
        for after in (self._after(cascade, step, above), {}):
            found = self._with_roots(cascade, step, after)
            if isinstance(found, Refusal):
                continue
            if not self.taken.isdisjoint(found.terms):
                found = Refusal(maximum, "another pass computes a part of it")
            elif self.graph.merge(found.terms, REACH):
                self.taken |= found.terms
                return found
            else:
                found = Refusal(maximum, "another kernel stands between its parts")
        return found

    def above(self, maximum: Term) -> list[Term]:
        """The terms that depend on a maximum, operands first, as far as a pass may reach."""
        found: list[Term] = []
        # A term has a greater id than its operands, so the least id next is operands first; and
        # what several terms led to comes out several times in a row.
        queue = [(user.id, user) for user in self.users[maximum]]
        heapq.heapify(queue)
        while queue and len(found) < ABOVE:
            _, term = heapq.heappop(queue)
            if not found or found[-1] is not term:
                found.append(term)
                for user in self.users[term]:
                    heapq.heappush(queue, (user.id, user))
        return found

    def _refused(self, cascade: Cascade, step: frozenset[Term]) -> Refusal | None:
        """Why a cascade cannot be a kernel, or has not enough to do side by side."""
        maximum = cascade.maximum
        lane = lane_axis(cascade)
        shares = self.shares
        # Lanes of one block are one unit's.
        apart = upper(maximum.axes - {lane}) * -(-upper(maximum.axes & {lane}) // shares.lanes)
        if apart < shares.blocks and upper((*maximum.axes, *maximum.attrs)) > shares.work:
            return Refusal(maximum, f"only {apart} blocks side by side would leave units idle")
        outside = self._needed_outside(cascade, step)
        if outside is not None:
            why = f"{outside!r}, a value per step, is needed outside of the pass"
            return Refusal(maximum, why)
        products = {r.args[0] for r in cascade.reductions if r.args[0].op == "Mul"}
        if not self.forced.isdisjoint(products):
            return Refusal(maximum, "a product that the pass sums is stored")
        return None

    def _needed_outside(self, cascade: Cascade, step: frozenset[Term]) -> Term | None:
        """A term of the pass that something else needs at every step."""
        allowed = step | set(cascade.reductions)
        for term in sorted(step, key=lambda t: t.id):
            if term in self.forced or not allowed.issuperset(self.users[term]):
                return term
        return None

    def _after(
        self, cascade: Cascade, step: frozenset[Term], above: Sequence[Term]
    ) -> dict[Term, None]:
        """The pointwise values computed of the results, as far up as their axes do not grow."""
        results = {cascade.maximum, *(m.term for m in cascade.members)}
        axes = frozenset[object]().union(*(result.axes for result in results))
        after: dict[Term, None] = {}
        beyond: set[Term] = set()  # depends on the results through what is no part of the pass
        for term in above:
            if term in results or term in step:
                continue
            if term in self.taken or not beyond.isdisjoint(term.args):
                beyond.add(term)
            elif any(arg in results or arg in after for arg in term.args):
                joins = term.is_pointwise and term.axes <= axes
                if joins and term.is_run == cascade.maximum.is_run:
                    after[term] = None
                else:
                    beyond.add(term)
        return after

    def _with_roots(
        self, cascade: Cascade, step: frozenset[Term], after: Mapping[Term, None]
    ) -> Pass | Refusal:
        """The pass with the results, and what is computed of them, that others need stored."""
        inside = {cascade.maximum, *(m.term for m in cascade.members), *after}
        within = inside.union(step)
        ends = [t for t in inside if t in self.forced or not within.issuperset(self.users[t])]
        roots = tuple(sorted(ends, key=lambda t: t.id))
        if not 0 < len(roots) <= MAX_ROOTS:
            why = f"{len(roots)} results; a kernel stores 1 to {MAX_ROOTS}"
            return Refusal(cascade.maximum, why)
        return Pass(cascade, step, frozenset(after) - set(roots), roots)


def _moved(order: Sequence[Term], forced: Set[Term]) -> set[Term]:
    """What is read at other positions than those of its axes: reductions, unless what is computed
    of them is stored.

    Only so do axes that two terms have in common mean the same loops.
    """
    found: set[Term] = set()
    moving: set[Term] = set()
    for term in reversed(order):
        ends = term.is_reduction or term.is_leaf or term.is_opaque
        if term in moving and (term.is_reduction or term in forced):
            found.add(term)
        elif term in moving and not ends:
            moving.update(term.args)
        if isinstance(term, At):
            moving.add(term.args[0])
    return found


def _nearest(maximum: Term, above: Sequence[Term]) -> list[Reduction]:
    """The reductions of its phase that a maximum reaches through pointwise values, in order."""
    found: list[Reduction] = []
    through = {maximum}
    for term in above:
        if not through.isdisjoint(term.args):
            if isinstance(term, Reduction):
                found += [term] if term.is_run == maximum.is_run else []
            elif not term.is_opaque:
                through.add(term)
    return found

"""Which cascaded reductions `fast` runs in one pass (see `kernel.cascade`), and in whose kernel."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from luminal.algebra.frames import extent_of, upper
from luminal.algebra.terms import At, Phase, Reduction, Term, axis_order
from luminal.costs import Costs
from luminal.dtypes import float32, float64
from luminal.forks import cached_property
from luminal.hlir.monoid import MAXIMUM
from luminal.kernel.cascade import (
    Cascade,
    IsRead,
    Refusal,
    derive,
    in_each_step,
    lane_axis,
    starts,
)
from luminal.kernel.loops import estimate
from luminal.kernel.source import source_of
from luminal.program.kernel_graph import KernelGraph
from luminal.select.kinds import is_product
from luminal.select.limits import REACH
from luminal.shape.expression import Symbol

MAX_ROOTS = 4
ABOVE = 300  # terms that depend on a contraction, among which its pass is looked for
COPIED = 1 << 15  # elements of a weight, from which it is copied so that it lies as it is read


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
    costs: Costs,
    among: Set[Term] | None = None,
    wanted: Set[Term] = frozenset(),
    last: Set[Term] = frozenset(),
) -> tuple[Pass, ...]:
    """The cascades whose results leave the pass only through a few pointwise values; those that
    begin `among` a set, if that is given. Contractions that are `wanted` stream where that does not
    seem to pay, too. What is computed of the `last` values is no part of a pass that gives them.

    Nothing outside may need what depends on the contractions per step: it is never stored. A pass
    is one kernel, so no other may stand between its parts (see `program.kernel_graph`).
    """
    firsts = [t for t in _firsts(order) if among is None or t in among]
    if not firsts:
        return ()
    near = _Neighbours(order, forced, costs, wanted, last)
    return tuple(p for p in map(near.pass_of, firsts) if isinstance(p, Pass))


def _firsts(order: Sequence[Term]) -> list[Reduction]:
    """What a pass may begin with: a maximum, or a reduction of what is computed of a contraction
    along its axes.
    """
    found: list[Reduction] = []
    axes: dict[Term, frozenset[Symbol]] = {}  # of the contractions that a term is computed of
    for term in order:
        below = frozenset[Symbol]().union(*(axes[arg] for arg in term.args))
        if isinstance(term, Reduction):
            maximum = term.monoid is MAXIMUM and term.dtype in (float32, float64)
            found += [term] if maximum or below.issuperset(term.attrs) else []
            below = term.axes if is_product(term) else frozenset()
        axes[term] = frozenset() if term.is_opaque else below
    return found


class _Neighbours:
    """What stands around the first reduction of a pass, and the passes found so far."""

    def __init__(
        self,
        order: Sequence[Term],
        forced: set[Term],
        costs: Costs,
        wanted: Set[Term],
        last: Set[Term],
    ) -> None:
        self.order = order
        self.costs = costs
        self.wanted, self.last = wanted, last
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

    def pass_of(self, first: Reduction) -> Pass | Refusal:
        if first in self.taken or first in self.stored:
            return Refusal(first, "it is computed elsewhere")
        stored, is_run = self.stored, first.is_run

        def is_read(term: Term) -> bool:
            # What the other side of prologue and run computes
            # lies in memory: a kernel is of one of them.
            return term in stored or (term.phase is Phase.RUN) is not is_run

        cascade = self.derived(first, is_read)
        if isinstance(cascade, Refusal):
            return cascade
        if cascade.first is not first and self.derived(cascade.first, is_read) != cascade:
            return Refusal(first, f"{cascade.first!r} has other blocks")
        step = in_each_step(cascade, is_read)
        refusal = self._refused(cascade, step)
        if refusal is not None:
            return refusal
        # With what is computed of the results, if that can be one kernel; else another reads them.
        above = self.above(cascade.reductions)
        for after in (self._after(cascade, step, above), {}):
            found = self._with_roots(cascade, step, after)
            if isinstance(found, Refusal):
                continue
            if not self.taken.isdisjoint(found.terms):
                found = Refusal(first, "another pass computes a part of it")
            elif self.graph.merge(found.terms, REACH):
                self.taken |= found.terms
                return found
            else:
                found = Refusal(first, "another kernel stands between its parts")
        return found

    def derived(self, first: Reduction, is_read: IsRead) -> Cascade | Refusal:
        begin = starts(first, is_read)
        above = self.above(begin)
        return derive(first, _nearest(first, begin, above), set(above), is_read)

    def above(self, starts: Iterable[Term]) -> list[Term]:
        """The terms that depend on these, operands first, as far as a pass may reach; these too."""
        found: list[Term] = []
        # A term has a greater id than its operands, so the least id next is operands first; and
        # what several terms led to comes out several times in a row.
        queue = [(term.id, term) for term in starts]
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
        first, rows = cascade.first, cascade.rows
        lane = lane_axis(cascade)
        shares = self.costs.shares
        # Lanes of one block are one unit's.
        apart = upper(rows - {lane}) * -(-upper(rows & {lane}) // shares.lanes)
        if apart < shares.blocks and upper(rows | cascade.steps) > shares.work:
            return Refusal(first, f"only {apart} blocks side by side would leave units idle")
        outside = self._needed_outside(cascade, step)
        if outside is not None:
            why = f"{outside!r}, a value per step, is needed outside of the pass"
            return Refusal(first, why)
        products = {r.args[0] for r in cascade.reductions if r.args[0].op == "Mul"}
        if not self.forced.isdisjoint(products):
            return Refusal(first, "a product that the pass sums is stored")
        if self.wanted.isdisjoint(cascade.inner) and not pays(cascade, self.costs):
            return Refusal(first, "storing what it reduces takes less time")
        return None

    def _needed_outside(self, cascade: Cascade, step: frozenset[Term]) -> Term | None:
        """A term of the pass that something else needs at every step."""
        allowed = step.union(cascade.reductions)
        for term in sorted(step, key=lambda t: t.id):
            if term in self.forced or not allowed.issuperset(self.users[term]):
                return term
        return None

    def _after(
        self, cascade: Cascade, step: frozenset[Term], above: Sequence[Term]
    ) -> dict[Term, None]:
        """The pointwise values computed of the results, as far up as their axes do not grow."""
        results = cascade.results
        axes = frozenset[Symbol]().union(*(result.axes for result in results))
        after: dict[Term, None] = {}
        beyond: set[Term] = set()  # depends on the results through what is no part of the pass
        for term in above:
            if term in results or term in step:
                continue
            ended = beyond | (self.last & after.keys())
            if term in self.taken or not ended.isdisjoint(term.args):
                beyond.add(term)
            elif any(arg in results or arg in after for arg in term.args):
                joins = term.is_pointwise and term.axes <= axes
                if joins and term.is_run == cascade.first.is_run:
                    after[term] = None
                else:
                    beyond.add(term)
        return after

    def _with_roots(
        self, cascade: Cascade, step: frozenset[Term], after: Mapping[Term, None]
    ) -> Pass | Refusal:
        """The pass with the results, and what is computed of them, that others need stored."""
        inside = cascade.results.union(after)
        within = inside.union(step)
        ends = [t for t in inside if t in self.forced or not within.issuperset(self.users[t])]
        roots = tuple(sorted(ends, key=lambda t: t.id))
        if not 0 < len(roots) <= MAX_ROOTS:
            why = f"{len(roots)} results; a kernel stores 1 to {MAX_ROOTS}"
            return Refusal(cascade.first, why)
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


def _nearest(
    first: Reduction, starts: Sequence[Reduction], above: Sequence[Term]
) -> list[Reduction]:
    """The reductions of its phase that are reached from the starts through pointwise values, or
    through others over the same axes, in order.
    """
    found: list[Reduction] = []
    steps = set(first.attrs)
    through: set[Term] = {*starts}
    for term in above:
        if not through.isdisjoint(term.args):
            if isinstance(term, Reduction):
                found += [term] if term.is_run == first.is_run else []
                through.update((term,) if set(term.attrs) == steps else ())
            elif not term.is_opaque:
                through.add(term)
    return found if first in found else [first, *found]


def pays(cascade: Cascade, costs: Costs) -> bool:
    """Does one kernel take less time than several that store what it reduces?"""
    if cascade.sweeps == 1 and any(m.rate for m in cascade.members):
        return True
    size, steps = cascade.inner[0].dtype.size, estimate(extent_of(axis_order(cascade.steps)))
    # Each block of rows reads the other factors of all its products: from a cache, or it waits.
    summed = sum(upper(r.attrs) for r in cascade.inner)
    others = summed + sum(upper(m.term.axes - cascade.rows) for m in cascade.members)
    # A contraction done again costs more than storing it, so a block is kept, or half of one.
    block = costs.shares.lanes * steps * size * len(cascade.inner)
    kept = cascade.sweeps == 1 or block <= 4 * costs.row_bytes
    lie = all(_lies(m.term, cascade.rows) for m in cascade.members)
    # A row of the block that is shorter than what is read and made for it saves little.
    return kept and lie and others <= steps and steps * others * size <= costs.cache_bytes


def _lies(member: Reduction, rows: frozenset[Symbol]) -> bool:
    """Does what is multiplied with a block lie along the axes that the block lacks?"""
    (x,) = member.args
    own = member.axes - rows
    for factor in x.args if own and x.op == "Mul" else ():
        source = source_of(factor, lambda t: t.is_leaf)
        # A weight is copied as it is wanted, and a value that is computed is stored so.
        if not factor.axes.isdisjoint(own) and source is not None and source.term.is_leaf:
            inner = [a for dimension in source.renamed(source.term.attrs.frame) for a in dimension]
            is_copied = source.term.phase is Phase.WEIGHT and upper(factor.axes) >= COPIED
            return is_copied or not inner or inner[-1] in own
    return True

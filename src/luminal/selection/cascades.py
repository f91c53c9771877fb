"""Which cascaded reductions `fast` runs in one pass (see `kernel.cascade`), and in whose kernel."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from luminal.algebra.terms import At, Reduction, Term
from luminal.base.costs import Costs
from luminal.base.dtypes import float32, float64
from luminal.base.forks import cached_property
from luminal.base.records import dataclass
from luminal.hlir.monoid import MAXIMUM
from luminal.hlir.ops import Value
from luminal.kernel.cascade import Cascade, Refusal
from luminal.program.kernel_graph import KernelGraph
from luminal.selection.cascade_costs import is_gain
from luminal.selection.kinds import is_product, sums_of_dots
from luminal.selection.limits import REACH
from luminal.selection.streams import Stream, Streams
from luminal.selection.users import users_of
from luminal.shape.expression import Symbol

MAX_ROOTS = 6
ABOVE = 300  # terms that depend on a contraction, among which its pass is looked for


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
        """The terms that are computed in the pass: they can belong to no other one."""
        return self.inner.union(self.roots, self.step, self.cascade.reductions)


# A kernel that reads a value of every step and one that reads the statistics in the end may have to
# wait for each other. So a pass is taken only where the graph of kernels stays free of circles;
# that is asked of single terms, before anything is stored.
def find(
    order: Sequence[Term],
    forced: set[Term],
    costs: Costs,
    among: Set[Term] | None = None,
    wanted: Set[Term] = frozenset(),
    last: Set[Term] = frozenset(),
    weights: Set[Value] = frozenset(),
) -> tuple[Pass, ...]:
    """The cascades whose results leave the pass only through a few pointwise values; those that
    begin `among` a set, if that is given. Contractions that are `wanted` stream where that does not
    seem to pay, too. What is computed of the `last` values is no part of a pass that gives them.
    `weights`: the arguments of a body that are weights outside.

    What depends on the contractions per step is never stored: others that need it are passes
    too, which compute it anew (see `selection.streams`). A pass is one kernel, so no other may
    stand between its parts (see `program.kernel_graph`).
    """
    firsts = [t for t in _firsts(order) if among is None or t in among]
    if not firsts:
        return ()
    near = _Neighbours(order, forced, costs, wanted, last, weights)
    by_first = map(near.together, firsts)
    return tuple(p for passes in by_first if not isinstance(passes, Refusal) for p in passes)


def streams(order: Sequence[Term], forced: set[Term], costs: Costs) -> Iterator[Stream]:
    """The cascades that share what they compute in a step with no other, whatever there is of rows,
    and whether or not they pay.
    """
    near = _Neighbours(order, forced, costs, frozenset(), frozenset(), frozenset())
    for first in _firsts(order):
        behind = Streams(near, first, idle=True)
        if behind.follow() is None and len(behind.found) == 1:
            yield behind.found[0]


def _firsts(order: Sequence[Term]) -> list[Reduction]:
    """What a pass may begin with: a maximum, or a reduction of what is computed of a contraction
    along its axes.
    """
    firsts: list[Reduction] = []
    axes: dict[Term, frozenset[Symbol]] = {}  # of the contractions that a term is computed of
    of_dots = sums_of_dots(order)
    for term in order:
        below = frozenset[Symbol]().union(*(axes[arg] for arg in term.args))
        if isinstance(term, Reduction):
            maximum = term.monoid is MAXIMUM and term.dtype in (float32, float64)
            streams = below.issuperset(term.attrs) and term not in of_dots
            firsts += [term] if maximum or streams else []
            below = term.axes if is_product(term) else frozenset()
        axes[term] = frozenset() if term.is_opaque else below
    return firsts


class _Neighbours:
    """What stands around the first reduction of a pass, and the passes found so far."""

    def __init__(
        self,
        order: Sequence[Term],
        forced: set[Term],
        costs: Costs,
        wanted: Set[Term],
        last: Set[Term],
        weights: Set[Value],
    ) -> None:
        self.order = order
        self.costs, self.weights = costs, weights
        self.wanted, self.last = wanted, last
        self.forced = forced
        self.users = users_of(order)
        self.taken: set[Term] = set()
        self.stored = _moved(order, forced).union(t for t in order if t.is_leaf or t.is_opaque)

    @cached_property
    def graph(self) -> KernelGraph:
        """The graph of the single terms, in which those of a pass are merged."""
        graph = KernelGraph({term: term.args for term in self.order})
        graph.keep_sequence(self.order)
        return graph

    def together(self, first: Reduction) -> tuple[Pass, ...] | Refusal:
        """The pass of a reduction, and those of all that needs what it computes in each step."""
        if first in self.taken:
            return Refusal(first, "it is computed elsewhere")
        streams = Streams(self, first)
        refusal = streams.follow()
        if refusal is not None:
            return refusal
        cascades = [planned_stream.cascade for planned_stream in streams.found]
        wanted = any(not self.wanted.isdisjoint(cascade.inner) for cascade in cascades)
        if not wanted and not is_gain(cascades, self.costs, self.weights):
            return Refusal(first, "storing what it reduces takes less time")
        order = streams.in_order()
        if len(order) < len(streams.found):
            return Refusal(first, "passes that share its steps wait for each other")
        statistics = {t for _, read in order for t in read}
        passes: list[Pass] = []
        for stream, _ in order:
            planned = self._kernel(stream, statistics, {t for p in passes for t in p.terms})
            if isinstance(planned, Refusal):
                return planned
            passes.append(planned)
        self.taken.update(*(p.terms for p in passes))
        self.stored.update(*(p.roots for p in passes))
        return tuple(passes)

    def _kernel(self, stream: Stream, statistics: Set[Term], shared: Set[Term]) -> Pass | Refusal:
        """The pass of a stream with what is computed of its results, if that can be one kernel;
        else another one reads them.

        What passes share is computed by each, but counts here as the first one's: its statistics
        are what the others read, so they run after it.
        """
        cascade = stream.cascade
        candidate: Pass | Refusal = Refusal(cascade.first, "it has no roots")
        # The larger kernel is tried first: an epilogue in the pass saves a read of its results. The
        # bare cascade is the fallback, since the epilogue may reach what belongs to another pass.
        for after in (self._after(stream, self.taken | shared), {}):
            candidate = self._with_roots(stream, after, statistics)
            if isinstance(candidate, Refusal):
                continue
            if not self.taken.isdisjoint(candidate.terms):
                candidate = Refusal(cascade.first, "another pass computes a part of it")
            elif self.graph.merge(candidate.terms - shared, REACH):
                return candidate
            else:
                candidate = Refusal(cascade.first, "another kernel stands between its parts")
        return candidate

    def above(self, starts: Iterable[Term], ends: Set[Term] = frozenset()) -> list[Term]:
        """The terms that depend on these, operands first, as far as a pass may reach; these too.
        Not what does so only by way of the `ends`.
        """
        reached: list[Term] = []
        # A term has a greater id than its operands, so the least id next is operands first; and
        # what several terms led to comes out several times in a row.
        queue = [(term.id, term) for term in starts]
        heapq.heapify(queue)
        while queue and len(reached) < ABOVE:
            _, term = heapq.heappop(queue)
            if not reached or reached[-1] is not term:
                reached.append(term)
                for user in () if term in ends else self.users[term]:
                    heapq.heappush(queue, (user.id, user))
        return reached

    def _after(self, stream: Stream, taken: Set[Term]) -> dict[Term, None]:
        """The pointwise values computed of the results, as far up as their axes do not grow."""
        results, step = stream.cascade.results, stream.step
        axes = frozenset[Symbol]().union(*(result.axes for result in results))
        after: dict[Term, None] = {}
        beyond: set[Term] = set()  # depends on the results through what is no part of the pass
        for term in self.above(stream.cascade.reductions):
            if term in results or term in step:
                continue
            ended = beyond | (self.last & after.keys())
            if term in taken or not ended.isdisjoint(term.args):
                beyond.add(term)
            elif any(arg in results or arg in after for arg in term.args):
                joins = term.is_pointwise and term.axes <= axes
                if joins and term.is_run == stream.cascade.first.is_run:
                    after[term] = None
                else:
                    beyond.add(term)
        return after

    def _with_roots(
        self, stream: Stream, after: Mapping[Term, None], statistics: Set[Term]
    ) -> Pass | Refusal:
        """The pass with the results, and what is computed of them, that others need stored."""
        cascade = stream.cascade
        inside = cascade.results.union(after)
        within = inside.union(stream.step)
        needed = self.forced.union(statistics)
        ends = [t for t in inside if t in needed or not within.issuperset(self.users[t])]
        roots = tuple(sorted(ends, key=lambda t: t.id))
        if not 0 < len(roots) <= MAX_ROOTS:
            why = f"{len(roots)} results; a kernel stores 1 to {MAX_ROOTS}"
            return Refusal(cascade.first, why)
        return Pass(cascade, stream.step, frozenset(after) - set(roots), roots)


def _moved(order: Sequence[Term], forced: Set[Term]) -> set[Term]:
    """What is read at other positions than those of its axes: reductions, unless what is computed
    of them is stored.

    Only so do axes that two terms have in common mean the same loops.
    """
    kept_whole: set[Term] = set()
    moving: set[Term] = set()
    for term in reversed(order):
        ends = term.is_reduction or term.is_leaf or term.is_opaque
        if term in moving and (term.is_reduction or term in forced):
            kept_whole.add(term)
        elif term in moving and not ends:
            moving.update(term.args)
        if isinstance(term, At):
            moving.add(term.args[0])
    return kept_whole

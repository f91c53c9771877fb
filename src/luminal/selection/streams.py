"""What else streams where a pass does: all that needs what it computes in each step.

Values per step are never stored, so each kernel that needs them computes them anew, from statistics
that another pass has stored: then these are operands like any other, and it may run its steps along
any axis. The gradients of attention are such passes over the same scores: along keys for the
statistics and what is summed over keys, along queries for what is summed over queries. Either all
of them stream or none does; what others wait for is found first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Protocol

from luminal.algebra.frames import upper
from luminal.algebra.terms import Reduction, Term, below
from luminal.base.costs import Costs
from luminal.base.records import dataclass
from luminal.kernel.cascade import (
    Cascade,
    Refusal,
    derive,
    in_each_step,
    lane_axis,
    rows_of,
    starts,
)

MOST_STREAMS = 8  # passes that share what they compute in a step: bounds the time of a compile


class Around(Protocol):
    """The program around a pass: its order, its users, and what of it is stored."""

    users: dict[Term, list[Term]]
    forced: set[Term]
    stored: set[Term]
    costs: Costs

    def above(self, starts: Iterable[Term], ends: Set[Term] = frozenset()) -> list[Term]:
        """The terms that depend on these, operands first, as far as a pass may reach; not what does
        so only by way of the `ends`.
        """


@dataclass(frozen=True, slots=True)
class Stream:
    """A cascade, and what it computes in each step."""

    cascade: Cascade
    step: frozenset[Term]


# All kernels that need a step's values become passes, or none does: one that read them from memory
# would force them to be stored, and then the others had better read them as well. Statistics are
# small and are stored, so a pass that needs them may run along any axis: the gradients of keys and
# values run along the queries.
class Streams:
    """The streams that begin with one reduction, and all that must stream with it. `idle`: units
    may be left without work.
    """

    def __init__(self, around: Around, first: Reduction, *, idle: bool = False) -> None:
        self.around, self.idle = around, idle
        self.first = first
        self.found: list[Stream] = []
        self.results: set[Term] = set()

    def follow(self) -> Refusal | None:
        """Finds all; else says why they are none."""
        waiting = {self.first}
        while waiting:
            if len(self.found) == MOST_STREAMS:
                return Refusal(self.first, f"more than {MOST_STREAMS} passes share its steps")
            # What others depend on comes first: a term has a greater id than its operands.
            cascade = self._derived(min(waiting, key=lambda r: r.id))
            if isinstance(cascade, Refusal):
                return cascade
            step = in_each_step(cascade, self.is_read)
            others = self._refused(cascade, step) or self._others(cascade, step)
            if isinstance(others, Refusal):
                return others
            self.found.append(Stream(cascade, step))
            self.results |= cascade.results
            waiting = (waiting | others) - self.results
        return self._needed_elsewhere()

    def in_order(self) -> list[tuple[Stream, set[Term]]]:
        """The streams, each after those whose results it reads, with those results; of some that
        wait for each other, none.
        """
        waiting = [(stream, self._read_by(stream)) for stream in self.found]
        ready_results: set[Term] = set()
        ordered = []
        while ready := [pair for pair in waiting if pair[1] <= ready_results]:
            ordered.append(ready[0])
            waiting.remove(ready[0])
            ready_results |= ready[0][0].cascade.results
        return ordered

    def _read_by(self, stream: Stream) -> set[Term]:
        """The results of other streams that this one reads."""
        others = self.results - stream.cascade.results
        ends = others | self.around.stored
        args = [arg for r in stream.cascade.reductions for arg in r.args]
        return others & below(args, ends.__contains__).keys() if others else set()

    def is_read(self, term: Term) -> bool:
        """Is the value read from memory? What the other side of prologue and run computes is: a
        kernel is of one of them.
        """
        is_stored = term in self.around.stored or term in self.results
        return is_stored or term.is_run is not self.first.is_run

    def _derived(self, first: Reduction) -> Cascade | Refusal:
        """The cascade whose first sweep the reduction is in."""
        begin = starts(first, self.is_read)
        # What other passes give lies in memory: all that is computed of the first layer's attention
        # would be a step's, up to the last gradients.
        above = self.around.above(begin, self.results)
        reductions, after = self._members(first, begin, above)
        cascade = derive(
            first, reductions, after, lambda t: self.is_read(t) and t not in reductions
        )
        if isinstance(cascade, Refusal) or cascade.first is first:
            return cascade
        same = self._derived(cascade.first) == cascade
        return cascade if same else Refusal(first, f"{cascade.first!r} has other blocks")

    def _members(
        self, first: Reduction, begin: Sequence[Reduction], above: Sequence[Term]
    ) -> tuple[list[Reduction], set[Term]]:
        """Reductions that can be of its pass, in order, and what depends on one of these.

        They are reached from the beginning through pointwise values or each other; not through
        another reduction of one, which is a kernel that stands between. All else that is computed
        of the same contractions is other kernels', and lies in memory.
        """
        # Flash attention and its gradients in one notion: every reduction that needs a block of
        # scores joins the pass that computes it, and the scores never exist as a whole.
        steps, rows = {*first.attrs}, rows_of(first, self.is_read)
        members: list[Reduction] = []
        near: set[Term] = {*begin}
        after: set[Term] = set()
        beyond: set[Term] = set()
        for term in above:
            is_near = term is first or not near.isdisjoint(term.args)
            if not beyond.isdisjoint(term.args):
                beyond.add(term)
            elif is_near and isinstance(term, Reduction) and term not in self.results:
                # One that is read at other positions is stored: a root of the pass.
                alike = {*term.attrs} == steps and term.axes >= rows
                if alike and term.is_run is self.first.is_run:
                    members.append(term)
                    near.add(term)
                    after.add(term)
                elif not after.isdisjoint(term.args):
                    beyond.add(term)
            else:
                if is_near and not term.is_opaque and not term.is_reduction:
                    near.add(term)
                if not after.isdisjoint(term.args):
                    (after if term.is_pointwise else beyond).add(term)
        return members, after | beyond

    def _refused(self, cascade: Cascade, step: frozenset[Term]) -> Refusal | None:
        """Why a cascade cannot be a kernel, or has not enough to do side by side."""
        first, rows = cascade.first, cascade.rows
        lane = lane_axis(cascade)
        shares = self.around.costs.shares
        # Lanes of one block are one unit's.
        apart = upper(rows - {lane}) * -(-upper(rows & {lane}) // shares.lanes)
        if not self.idle and apart < shares.blocks and upper(rows | cascade.steps) > shares.work:
            return Refusal(first, f"only {apart} blocks side by side would leave units idle")
        forced = self.around.forced
        for term in sorted(step & forced, key=lambda t: t.id):
            return _outside(first, term)
        products = {r.args[0] for r in cascade.reductions if r.args[0].op == "Mul"}
        if not forced.isdisjoint(products):
            return Refusal(first, "a product that the pass sums is stored")
        return None

    def _others(self, cascade: Cascade, step: frozenset[Term]) -> set[Reduction] | Refusal:
        """Reductions of other kernels that need a value of a step."""
        inside = step.union(cascade.reductions)
        users = self.around.users
        reductions: set[Reduction] = set()
        seen: set[Term] = set()
        for term in sorted(step, key=lambda t: t.id):
            stack = [user for user in users[term] if user not in inside]
            while stack:
                user = stack.pop()
                if user in seen:
                    continue
                seen.add(user)
                if isinstance(user, Reduction) and user.is_run is self.first.is_run:
                    reductions.add(user)
                elif not user.is_pointwise or user in self.around.forced:
                    return _outside(cascade.first, term)
                else:
                    stack += users[user]
        return reductions

    def _needed_elsewhere(self) -> Refusal | None:
        """A refusal if a value of a step is needed by what does not compute it anew."""
        insides = [
            (stream.step, stream.step.union(stream.cascade.reductions)) for stream in self.found
        ]
        for stream in self.found:
            for term in sorted(stream.step, key=lambda t: t.id):
                for user in self.around.users[term]:
                    steps = [step for step, inside in insides if user in inside]
                    if not steps or any(term not in step for step in steps):
                        return _outside(self.first, term)
        return None


def _outside(first: Term, term: Term) -> Refusal:
    return Refusal(first, f"{term!r}, a value per step, is needed outside of the pass")

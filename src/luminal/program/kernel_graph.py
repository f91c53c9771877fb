"""Which kernel waits for which, while values are merged into kernels. None ever wait in a circle.

Every node has a level above those of all that it waits for. Several nodes may become one if no path
leaves one of them and comes back to another through a node outside. Such a path would climb: it is
looked for from what the new node would wait for, down to the lowest level of its members. What
waits for the new node is then lifted above it. Merges that are legal alone may be illegal together;
so each one is judged by the graph as those before it have left it.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set

from luminal.algebra.terms import Term
from luminal.base.errors import VerifyError


# Levels are kept up to date after each merge, so that a question looks only at kernels between two
# levels (compare Pearce and Kelly, A dynamic topological sort algorithm, 2006). Judging merges by
# the order of terms was wrong: once others are merged, what comes early may wait for what comes
# late.
class KernelGraph:
    """Terms, which are merged step by step; an edge leads from each to what it waits for."""

    def __init__(self, reads: Mapping[Term, Iterable[Term]]) -> None:
        """`reads`: every term after those that it reads; what it lacks counts for nothing."""
        self._number = {term: k for k, term in enumerate(reads)}
        self._home = [*range(len(reads))]  # a node that was merged into another leads to it
        self._below: list[set[int]] = []
        self._above: list[set[int]] = [set() for _ in reads]
        self._level: dict[int, int] = {}
        for k, operands in enumerate(reads.values()):
            below = {self._number[t] for t in operands if t in self._number}
            self._below.append(below)
            self._level[k] = 1 + max((self._level[n] for n in below), default=-1)
            for n in below:
                self._above[n].add(k)

    def merge(self, terms: Iterable[Term], reach: float = math.inf) -> bool:
        """The kernels of these terms become one, if then none wait for each other.

        `reach`: the number of kernels to look at; where more lie between, they stay apart.
        """
        # A merge is judged by the graph as the merges before it have left it, never by the one at
        # the start: merges that are legal alone may be illegal together.
        members = {self._find(self._number[term]) for term in terms}
        if len(members) < 2:
            return True
        below = {self._find(n) for m in members for n in self._below[m]} - members
        above = {self._find(n) for m in members for n in self._above[m]} - members
        level = 1 + max((self._level[n] for n in below), default=-1)
        # Levels fall along a path, so one back to a member never leads below the lowest of them.
        if self._reaches(below, members, reach):
            return False
        lifted = self._lifted(above, level, reach)
        if lifted is None:
            return False
        node = min(members)
        for other in members:
            self._home[other] = node
        self._below[node], self._above[node] = below, above
        self._level[node] = level
        self._level.update(lifted)
        return True

    def wait(self, last: Term, first: Iterable[Term]) -> bool:
        """Lets the kernel of `last` run after those of `first` as well, if these do not need it."""
        node = self._find(self._number[last])
        below = {self._find(self._number[term]) for term in first} - {node}
        if self._reaches(below, {node}, math.inf):
            return False
        level = max((self._level[n] + 1 for n in below), default=0)
        if level > self._level[node]:
            self._level.update(self._lifted(self._nodes(self._above[node]), level) or {})
            self._level[node] = level
        self._below[node] |= below
        for n in below:
            self._above[n].add(node)
        return True

    def keep_sequence(self, terms: Iterable[Term]) -> None:
        """Lets each collective among these run after the one before it, as all ranks run them."""
        for term, before in collectives_before(terms).items():
            if not self.wait(term, (before,)):
                raise VerifyError(f"collectives: {before!r} comes first and needs {term!r}")

    def _find(self, node: int) -> int:
        home = self._home
        while home[node] != node:
            home[node] = home[home[node]]
            node = home[node]
        return node

    def _nodes(self, numbers: Set[int]) -> set[int]:
        return {self._find(n) for n in numbers}

    def _reaches(self, starts: Collection[int], wanted: Set[int], reach: float) -> bool:
        """Does one of `starts` wait for one of `wanted`? Also true where that is beyond reach."""
        lowest = min(self._level[n] for n in wanted)
        seen = {n for n in starts if self._level[n] > lowest}
        stack = [*seen]
        while stack:
            if len(seen) > reach:
                return True
            for n in map(self._find, self._below[stack.pop()]):
                if n in wanted:
                    return True
                if n not in seen and self._level[n] > lowest:
                    seen.add(n)
                    stack.append(n)
        return False

    def _lifted(
        self, above: Iterable[int], level: int, reach: float = math.inf
    ) -> dict[int, int] | None:
        """The levels of what waits for a node, once that is at `level`; None beyond reach."""
        lifted: dict[int, int] = {}
        queue = [(level + 1, n) for n in above if self._level[n] <= level]
        heapq.heapify(queue)
        while queue:
            needed, node = heapq.heappop(queue)
            if lifted.get(node, self._level[node]) >= needed:
                continue
            lifted[node] = needed
            if len(lifted) > reach:
                return None
            for n in self._nodes(self._above[node]):
                if lifted.get(n, self._level[n]) <= needed:
                    heapq.heappush(queue, (needed + 1, n))
        return lifted


def kernel_reads(
    order: Sequence[Term], is_stored: Callable[[Term], bool]
) -> dict[Term, frozenset[Term]]:
    """The leaves and stored terms that the kernel of each stored term reads, in order."""
    kernel_inputs: dict[Term, frozenset[Term]] = {}
    ends: dict[Term, frozenset[Term]] = {}  # what a kernel reads for the sake of a term
    for term in order:
        reads = frozenset[Term]().union(*(ends[arg] for arg in dict.fromkeys(term.args)))
        if is_stored(term):
            kernel_inputs[term] = reads
        ends[term] = frozenset((term,)) if term.is_leaf or is_stored(term) else reads
    return kernel_inputs


def collectives_before(terms: Iterable[Term]) -> dict[Term, Term]:
    """Collectives, and Loops with some inside, each with the one before it in their order. Of an
    operation with several results, the first stands for it.
    """
    first: dict[int, Term] = {}  # by place in the order
    for term in terms:
        if term.is_opaque and term.attrs.sequence:
            first.setdefault(term.attrs.sequence, term)
    in_order = [first[number] for number in sorted(first)]
    return dict(zip(in_order[1:], in_order, strict=False))


def kernels(reads: Mapping[Term, Iterable[Term]], merges: Iterable[Iterable[Term]]) -> KernelGraph:
    """The kernels of these stored terms: merged as asked, all results of one operation together,
    collectives in their order.

    Raises VerifyError where they wait for each other.
    """
    graph = KernelGraph(reads)
    graph.keep_sequence(reads)
    operations: defaultdict[int, list[Term]] = defaultdict(list)
    for term in reads:
        if term.is_opaque:
            operations[term.attrs.site].append(term)
    for terms in (*operations.values(), *merges):
        if not graph.merge(terms):
            names = ", ".join(map(repr, terms))
            raise VerifyError(f"selection: {names} are one kernel and wait for each other")
    return graph

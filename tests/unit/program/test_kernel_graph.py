"""Kernels never wait for each other, whatever is merged: checked against plain reachability."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from luminal.algebra.terms import Term, Terms
from luminal.base.dtypes import float32
from luminal.base.errors import VerifyError
from luminal.program.kernel_graph import KernelGraph, kernels


def chain(count: int) -> list[Term]:
    """Distinct terms; what they wait for is told to the graph apart."""
    terms = Terms()
    found = [terms.literal(b"0000", float32)]
    while len(found) < count:
        found.append(terms.pointwise("Exp", (found[-1],), float32))
    return found


class Slow:
    """The same graph, with every path followed."""

    def __init__(self, reads: dict[Term, list[Term]]) -> None:
        self.groups = [{term} for term in reads]
        self.edges = {(a, b) for b, operands in reads.items() for a in operands}

    def is_acyclic(self, groups: list[set[Term]], edges: Iterable[tuple[Term, Term]]) -> bool:
        home = {term: k for k, group in enumerate(groups) for term in group}
        above: dict[int, set[int]] = {k: set() for k in range(len(groups))}
        for a, b in edges:
            if home[a] != home[b]:
                above[home[a]].add(home[b])
        free = [k for k in above if not any(k in users for users in above.values())]
        done = set()
        while free:
            k = free.pop()
            done.add(k)
            ready = (n for n in above[k] if n not in done)
            free += [n for n in ready if all(m in done for m in above if n in above[m])]
        return len(done) == len(groups)

    def merge(self, terms: list[Term]) -> bool:
        apart = [group for group in self.groups if group.isdisjoint(terms)]
        joined = set().union(*(group for group in self.groups if not group.isdisjoint(terms)))
        legal = self.is_acyclic([*apart, joined], self.edges)
        if legal:
            self.groups = [*apart, joined]
        return legal

    def wait(self, last: Term, first: list[Term]) -> bool:
        edges = self.edges | {(term, last) for term in first if term is not last}
        if self.is_acyclic(self.groups, edges):
            self.edges = edges
            return True
        return False


@pytest.mark.parametrize("waits", [0.2, 0.6])
@pytest.mark.parametrize("seed", range(40))
def test_merges_are_legal_where_no_circle_closes(seed: int, waits: float) -> None:
    draw = random.Random(seed)
    terms = chain(draw.randint(4, 24))
    reads = {
        term: draw.sample(terms[:k], min(k, draw.randint(0, 3))) for k, term in enumerate(terms)
    }
    fast, slow = KernelGraph(reads), Slow(reads)
    for _ in range(40):
        several = draw.sample(terms, draw.randint(2, 3))
        if draw.random() > waits:
            assert fast.merge(several) == slow.merge(several)
        else:
            assert fast.wait(several[0], several[1:]) == slow.wait(several[0], several[1:])


def test_merges_that_are_legal_alone_are_not_both_taken() -> None:
    a, b, c, d = terms = chain(4)
    reads = {a: [], b: [], c: [a], d: [b]}
    assert KernelGraph(reads).merge((a, d))
    assert KernelGraph(reads).merge((b, c))
    both = KernelGraph(reads)
    assert both.merge((a, d))
    assert not both.merge((b, c))
    with pytest.raises(VerifyError, match="are one kernel and wait for each other"):
        kernels(reads, ((terms[0], terms[3]), (terms[1], terms[2])))


def test_what_lies_beyond_reach_stays_apart() -> None:
    terms = chain(30)
    reads = {term: terms[max(0, k - 1) : k] for k, term in enumerate(terms)}
    reads[terms[15]] = []  # two chains
    graph = KernelGraph(reads)
    assert not graph.merge((terms[14], terms[15]), reach=5)  # the second one would be lifted
    assert graph.merge((terms[14], terms[15]))
    assert not graph.merge((terms[0], terms[15]))


def test_where_too_much_would_be_lifted_kernels_stay_apart() -> None:
    u, v, *rest = terms = chain(24)
    reads = {term: terms[k - 1 : k] for k, term in enumerate(terms) if k}
    reads = {u: [], v: [u], rest[0]: []} | {t: reads[t] for t in rest[1:]}
    graph = KernelGraph(reads)
    assert not graph.merge((v, rest[0]), reach=5)  # all that waits for the second is lifted
    assert not graph.merge((u, rest[-1], v), reach=5)
    assert graph.merge((v, rest[0]))

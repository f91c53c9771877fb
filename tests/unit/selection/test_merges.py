"""Which stored values become one kernel: decided on small graphs of terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from luminal.algebra.terms import Term, Terms
from luminal.base.dtypes import float32
from luminal.hlir.graph import Builder
from luminal.memory.parameter import Parameter
from luminal.program.kernel_graph import KernelGraph
from luminal.selection.limits import KERNEL_TERMS
from luminal.selection.merge import merges
from luminal.shape.expression import axis, const
from tests.machines import COSTS

ROWS, COLUMNS = 8, 16
I, K = axis("i", ROWS), axis("k", COLUMNS)


class Graph:
    """x[i, k], b[i] and w[i, k], of which the last one is a weight; a kernel a row."""

    def __init__(self) -> None:
        self.terms, builder = Terms(), Builder()
        wide, narrow = (const(ROWS), const(COLUMNS)), (const(ROWS),)
        self.x = self.terms.leaf(builder.input("x", wide, float32), ((I,), (K,)))
        self.b = self.terms.leaf(builder.input("b", narrow, float32), ((I,),))
        weight = builder.weight("w", Parameter((ROWS, COLUMNS)))
        self.w = self.terms.leaf(weight, ((I,), (K,)))
        self.order: list[Term] = [self.x, self.b, self.w]
        self.stored: list[Term] = []

    def op(self, name: str, *args: Term) -> Term:
        return self._known(self.terms.pointwise(name, args, float32))

    def sum(self, x: Term) -> Term:
        return self.store(self._known(self.terms.reduce("Sum", (K,), x)))

    def store(self, term: Term) -> Term:
        self.stored.append(term)
        return term

    def at(self, x: Term) -> Term:
        """x[rows - 1 - i]."""
        return self._known(self.terms.at(x, {I: ROWS - 1 - I}))

    def _known(self, term: Term) -> Term:
        self.order.append(term)
        return term

    def merged(
        self,
        alone: Iterable[Term] = (),
        sizes: Mapping[Term, int] | None = None,
        together: Iterable[Iterable[Term]] = (),
        left: Iterable[Term] = (),
        wished: Iterable[tuple[Term, Term]] = (),
    ) -> list[set[Term]]:
        """The groups, where all kernels but those `alone` have rows as their grid, and the rule has
        those `left` alone.
        """
        grids = {t: None if t in alone else frozenset((I,)) for t in self.stored}
        all_sizes = dict.fromkeys(self.stored, 1) | dict(sizes or {})
        found = merges(
            self.order, self.stored.__contains__, grids, all_sizes, together, COSTS.streams,
            frozenset(left), wished,
        )  # fmt: skip
        return [set(group) for group in found]


def test_sums_of_the_same_rows_are_one_kernel() -> None:
    g = Graph()
    one, other = g.sum(g.x), g.sum(g.op("Exp", g.x))
    assert g.merged() == [{one, other}]


def test_one_large_operand_in_common_is_enough() -> None:
    g = Graph()
    one, other = g.sum(g.op("Mul", g.x, g.b)), g.sum(g.op("Exp", g.op("Mul", g.x, g.b)))
    assert g.merged() == [{one, other}]


def test_a_small_operand_in_common_is_no_reason() -> None:
    g = Graph()
    g.sum(g.op("Mul", g.x, g.b))
    g.store(g.op("Exp", g.b))
    assert g.merged() == []


def test_a_weight_in_common_is_no_reason() -> None:
    g = Graph()
    g.sum(g.op("Mul", g.w, g.b))
    g.sum(g.op("Add", g.w, g.b))
    assert g.merged() == []


def test_what_reads_a_group_joins_it() -> None:
    g = Graph()
    total = g.sum(g.x)
    share = g.store(g.op("Mul", total, g.b))
    assert g.merged() == [{total, share}]


def test_other_grids_and_phases_stay_apart() -> None:
    g = Graph()
    one, other = g.sum(g.x), g.sum(g.op("Exp", g.x))
    assert g.merged(alone=[other]) == []
    assert g.merged(alone=[one]) == []
    g = Graph()
    early = g.sum(g.w)
    g.store(g.op("Mul", early, g.b))
    assert g.merged() == []


def test_a_value_that_is_read_elsewhere_in_its_row_must_be_whole() -> None:
    g = Graph()
    total = g.sum(g.x)
    g.store(g.op("Mul", g.at(total), total))
    assert g.merged() == []
    g = Graph()
    total = g.sum(g.x)
    g.store(g.op("Mul", g.at(g.op("Exp", total)), g.b))
    assert g.merged() == []
    g = Graph()  # what is moved belongs to nobody here
    total, other = g.sum(g.x), g.sum(g.op("Mul", g.x, g.at(g.b)))
    assert g.merged() == [{total, other}]


def test_no_path_may_leave_a_kernel_and_come_back() -> None:
    g = Graph()
    total = g.sum(g.x)
    between = g.store(g.op("Exp", total))
    g.sum(g.op("Mul", g.x, between))
    assert g.merged(alone=[between]) == []
    assert len(g.merged()) == 1


def test_merges_that_are_legal_alone_may_close_a_circle() -> None:
    """p and s share x, q and r share y; r waits for p, s for q."""
    g = Graph()
    y = g.op("Exp", g.x)
    y = g.store(y)
    p, q = g.sum(g.op("Mul", g.x, g.b)), g.sum(g.op("Mul", y, g.b))
    one, other = g.store(g.op("Exp", p)), g.store(g.op("Exp", q))
    r, s = g.sum(g.op("Mul", y, one)), g.sum(g.op("Mul", g.x, other))
    found = g.merged(alone=[y, one, other])
    assert found in ([{p, s}], [{q, r}], [{p, q}], [{p, q, s}], [{p, s}, {q}])
    home = KernelGraph({t: [a for a in g.stored if a in reads_of(g, t)] for t in g.stored})
    assert all(home.merge(group) for group in found)
    assert {p, s} not in found or {q, r} not in found


def reads_of(g: Graph, term: Term) -> set[Term]:
    """The stored terms below a term, none of them below another."""
    found: set[Term] = set()
    stack = [*term.args]
    while stack:
        below = stack.pop()
        if below in g.stored:
            found.add(below)
        else:
            stack.extend(below.args)
    return found


def test_what_is_one_kernel_already_counts_as_one() -> None:
    """first and last are results of one operation; what stands between them reads the first."""
    g = Graph()
    total = g.sum(g.x)
    first = g.store(g.op("Exp", g.b))
    last = g.store(g.op("Sqrt", total))
    product = g.sum(g.op("Mul", g.x, first))
    assert g.merged(alone=[first, last]) == [{total, product}]
    assert g.merged(alone=[first, last], together=[(first, last)]) == []


def test_a_kernel_has_so_many_members_at_most() -> None:
    g = Graph()
    for k in range(COSTS.streams + 2):
        g.sum(g.op("Mul", g.x, g.terms.literal(np.float32(k).tobytes(), float32)))
    g.order[3:3] = [t for t in g.order if t.op == "Mul"]
    g.order = list(dict.fromkeys([*g.order[:3], *literals(g), *g.order]))
    first, second = g.merged()
    assert (len(first), len(second)) == (COSTS.streams, 2)


def literals(g: Graph) -> list[Term]:
    return [a for t in g.order for a in t.args if a.op == "Literal"]


def test_a_kernel_is_so_long_at_most() -> None:
    for extra, count in ((0, 1), (1, 0)):
        g = Graph()
        one, other = g.sum(g.x), g.sum(g.op("Exp", g.x))
        sizes = {one: KERNEL_TERMS - 10, other: 10 + extra}
        assert len(g.merged(sizes=sizes)) == count


# --- what a genome joins --------------------------------------------------------------------------


def test_what_the_rule_leaves_apart_is_joined_where_wished() -> None:
    g = Graph()
    one, other = g.sum(g.x), g.sum(g.op("Exp", g.x))
    third = g.store(g.op("Exp", g.b))  # it has nothing in common with the sums
    assert g.merged(left=(one,)) == []
    assert g.merged(left=(one,), wished=[(other, one)]) == [{one, other}]
    assert g.merged(wished=[(third, one)]) == [{one, other, third}]
    assert g.merged(left=(one, other), wished=[(third, one), (other, third)]) == [
        {one, other, third}
    ]


def test_wishes_that_are_not_legal_are_passed_over() -> None:
    g = Graph()
    one = g.sum(g.x)
    moved = g.store(g.op("Exp", g.at(one)))
    assert g.merged(wished=[(moved, one)]) == []
    later = g.sum(g.op("Mul", g.x, moved))
    assert g.merged(left=g.stored, wished=[(later, one)]) == []  # `moved` would wait for itself
    constant = g.sum(g.w)
    assert g.merged(left=g.stored, wished=[(constant, one), (one, one)]) == []  # another phase
    alike = g.sum(g.op("Exp", g.x))
    assert g.merged(alone=(alike,), left=g.stored, wished=[(alike, one)]) == []
    long = {one: KERNEL_TERMS}
    assert g.merged(left=g.stored, sizes=long, wished=[(alike, one)]) == []


def test_no_more_values_are_joined_than_a_kernel_may_store() -> None:
    g = Graph()
    sums = [g.sum(g.op("Mul", g.x, g.store(g.op("Exp", g.b))))]
    for _ in range(COSTS.streams):
        sums.append(g.sum(g.op("Exp", sums[-1].args[0])))
    wished = [(each, sums[0]) for each in sums[1:]]
    (found,) = g.merged(left=sums, wished=wished)
    assert len(found) == COSTS.streams

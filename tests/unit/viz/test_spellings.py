"""Spellings and searches in the viewer's document."""

from __future__ import annotations

from typing import Any

import pytest

import luminal as lm
from luminal.backends import registry
from luminal.backends.backend import Backend
from luminal.base.numerics import Numerics
from luminal.rules import RULES
from luminal.search.cost_model import CostModel
from luminal.search.differences import differences
from luminal.search.genome import Genome
from luminal.search.space import Space
from luminal.session import graph as session
from luminal.viz.spellings import refused, spellings
from luminal.viz.terms import TermValues
from luminal.viz.unrolled import values_of
from luminal.viz.values import ByOrigin, Values


def recorded() -> Any:
    """Two products in a row, which may be multiplied in either order, and a softmax."""
    cx = lm.Graph("spelled")
    x = cx.tensor((2, 64), name="x")
    w = cx.tensor((64, 64), name="w")
    v = cx.tensor((64, 8), name="v")
    ((x @ w) @ v).softmax(-1).output("y")
    return session.narrowed(cx)


def cpu() -> Backend:
    return registry.compiling("cpu")


@pytest.fixture(scope="module")
def space() -> Space:
    return Space(recorded(), cpu())


def rows(space: Space, genome: Genome) -> tuple[Values, list[dict[str, Any]]]:
    values = Values(space.graph)
    by_origin = ByOrigin(values)
    of_nodes = values_of(space.graph, values, by_origin)
    of_terms = TermValues(space.graph, space.lowered, of_nodes, by_origin)
    return values, spellings(space, genome, {}, of_terms)


def test_each_value_has_one_chosen_spelling_and_reasons_for_the_others(space: Space) -> None:
    kinds = {rule.name: str(rule.kind) for rule in RULES}
    _, spelled = rows(space, Genome())
    assert spelled
    for row in spelled:
        chosen, *others = row["nodes"]
        assert row["of"]
        assert chosen["chosen"]
        assert chosen["rule"] == ""  # as it was recorded
        assert others
        for other in others:
            assert not other["chosen"]
            assert other["why_not"]
            assert other["kind"] == kinds[other["rule"]]


def test_a_product_by_the_wrong_order_costs_what_the_model_says(space: Space) -> None:
    """`(x @ w) @ v` is 9,216 products, `x @ (w @ v)` 33,792: the second is named and dearer."""
    values, spelled = rows(space, Genome())
    sums = [n for n, node in enumerate(values.nodes) if node.op.name == "Sum"]
    (row,) = [r for r in spelled if sums[1] in r["of"]]
    (other,) = [node for node in row["nodes"] if node["rule"] == "matmul-associates"]
    chosen = row["nodes"][0]
    model = CostModel({}, space.backend)
    assert chosen["cost"] == model.cost(space.decode(Genome()).program).seconds
    assert other["cost"] > chosen["cost"]
    assert "times as long" in other["why_not"]


def test_a_search_that_chose_it_has_it_chosen(space: Space) -> None:
    (classes,) = space.all_classes()
    gene, spelling = next(
        (gene, spelling)
        for gene in classes.genes()
        for spelling in gene.spellings
        if spelling.rule == "matmul-associates"
    )
    genome = Genome(spellings=((gene.fingerprint, spelling.fingerprint),))
    _, spelled = rows(space, genome)
    rules = [row["nodes"][0]["rule"] for row in spelled]
    assert "matmul-associates" in rules
    (said,) = differences(space, genome)
    assert genome.with_choice(*said.taken_back) == Genome()
    assert "by the rule matmul-associates, in place of Sum" in said.text
    assert "test_spellings.py" in said.text  # the user's line


def test_the_difference_has_a_sentence_for_each_choice(space: Space) -> None:
    fast = space.decode(Genome())
    for move in space.moves(fast):
        genome = move.of(Genome())
        said = [*differences(space, genome)]
        assert len(said) == len(move.choices), move.note
        for row in said:
            genome = genome.with_choice(*row.taken_back)
        assert genome == Genome()
    assert not [*differences(space, Genome())]


def test_rules_that_numerics_leave_out_are_counted() -> None:
    exact = Space(recorded(), cpu(), Numerics.EXACT)
    count = sum(str(rule.kind) != "exact" for rule in RULES)
    assert refused(exact).startswith(f"{count} rules of kind rounding and domain are left out")
    assert "relaxed" in refused(Space(recorded(), cpu(), Numerics.RELAXED))

"""Random programs against PyTorch, and wide DAGs against the reference (see `tests.fuzz.campaign`).

Half of the leaves are Weights or constants, so that whole sub-graphs belong to the prologue.
"""

from __future__ import annotations

import pytest

from tests.fuzz.campaign import campaign
from tests.fuzz.programs.check import FAST, How
from tests.fuzz.programs.form import Leaf
from tests.fuzz.programs.grown import torch_program
from tests.fuzz.programs.wide import dag
from tests.long_share import mostly_long

CHUNK = 2
MOST_MASKED = 0.005


def check_seeds(kind: str, seeds: range, how: How = FAST, largest: int = 1000) -> None:
    tally = campaign(kind, seeds, how.numerics, how.seconds, largest)
    assert not tally.failures, f"{tally.summary()}: {dict(tally.failures)}"
    assert tally.compared.masked <= MOST_MASKED * tally.compared.elements, tally.summary()


@pytest.mark.parametrize("chunk", mostly_long(range(300), 1))
def test_programs_agree_with_torch(chunk: int) -> None:
    check_seeds("torch", range(CHUNK * chunk, CHUNK * (chunk + 1)))


@pytest.mark.parametrize("chunk", mostly_long(range(10), 1))
def test_dags_agree_with_the_reference(chunk: int) -> None:
    check_seeds("dag", range(2 * chunk, 2 * (chunk + 1)), largest=150)


@pytest.mark.parametrize("chunk", mostly_long(range(4), 1))
@pytest.mark.parametrize("numerics", ["exact", "relaxed"])
def test_programs_under_other_numerics(numerics: str, chunk: int) -> None:
    check_seeds("torch", range(5000 + 2 * chunk, 5002 + 2 * chunk), How(numerics=numerics))


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(5))
def test_large_dags_agree_with_the_reference(chunk: int) -> None:
    check_seeds("dag", range(100 + 10 * chunk, 110 + 10 * chunk))


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(3))
def test_searched_programs_agree_with_torch(chunk: int) -> None:
    check_seeds("torch", range(6000 + 10 * chunk, 6010 + 10 * chunk), How(seconds=0.5))


@pytest.mark.long
def test_half_of_the_leaves_are_weights_or_constants() -> None:
    kinds = [
        node.kind
        for seed in range(12)
        for node in torch_program(seed)[0].nodes
        if isinstance(node, Leaf)
    ]
    assert 0.4 <= sum(kind in ("weight", "constant") for kind in kinds) / len(kinds) <= 0.7


def test_dags_are_wide() -> None:
    program = dag(0)
    assert len(program.outputs) >= 20
    assert program.steps() >= 300

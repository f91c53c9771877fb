"""Gradients of random programs against PyTorch's: on the reference, every fifth on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import luminal as lm
from luminal.hlir.attributes import InputAttrs
from tests.autograd.programs import STEPS, Growth, Pair, Program, grown
from tests.long_share import mostly_long

CHUNK, CHUNKS = 40, 10  # programs recorded into one graph, and how many such graphs
DRAWN = 40  # by hypothesis, one by one
MARGIN = 1e-7  # of the largest gradient, in float64


def wrong(graph: lm.Graph, programs: Sequence[Program], backend: str) -> list[str]:
    """What differs, a line each."""
    used = {n.attrs.name for n in graph.graph().nodes() if isinstance(n.attrs, InputAttrs)}
    values = {name: x for each in programs for name, x in each.values.items() if name in used}
    found = lm.compile(graph, backend)(values)
    return [line for each in programs for line in each.wrong(found, MARGIN)]


def chunk_of(seeds: range) -> tuple[lm.Graph, list[Program]]:
    """Programs by their seeds, in one graph."""
    graph = lm.Graph()
    return graph, [grown(graph, Random(seed), f"p{seed}_") for seed in seeds]


@pytest.mark.parametrize("chunk", mostly_long(range(CHUNKS), 1))
def test_gradients_of_programs_are_pytorchs(chunk: int) -> None:
    graph, programs = chunk_of(range(CHUNK * chunk, CHUNK * (chunk + 1)))
    assert wrong(graph, programs, "reference") == []


@pytest.mark.parametrize("chunk", mostly_long(range(CHUNKS), 1))
def test_on_the_cpu_too(chunk: int) -> None:
    graph, programs = chunk_of(range(CHUNK * chunk, CHUNK * (chunk + 1), 5))
    assert wrong(graph, programs, "cpu") == []


@settings(max_examples=DRAWN, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_programs_that_hypothesis_draws(rng: Random) -> None:
    graph = lm.Graph()
    assert wrong(graph, [grown(graph, rng)], "reference") == []


@pytest.mark.parametrize("chunk", mostly_long(range(10), 1))
def test_gradients_of_gradients(chunk: int) -> None:
    graph = lm.Graph()
    seeds = range(CHUNK * chunk, CHUNK * (chunk + 1), 2)
    programs = [grown(graph, Random(seed), f"p{seed}_", again=True) for seed in seeds]
    assert wrong(graph, programs, "reference") == []


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(100, 150))
def test_many_programs(chunk: int) -> None:
    graph, programs = chunk_of(range(CHUNK * chunk, CHUNK * (chunk + 1)))
    assert wrong(graph, programs, "reference") == []


def test_every_step_is_taken() -> None:
    taken = {step for seed in range(60) for step in grown(lm.Graph(), Random(seed)).steps}
    assert taken == {step.__name__ for step in STEPS}


def test_a_wrong_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lying = lm.custom_vjp(lambda x: x * 1.5, lambda g, y, x: g * 1.4)

    def planted(growth: Growth) -> Pair | None:
        x = growth.pick()
        return None if x is None else Pair(lying(x.ours), x.theirs * 1.5)

    monkeypatch.setattr("tests.autograd.programs.STEPS", [planted])
    graph, programs = chunk_of(range(5))
    assert wrong(graph, programs, "reference") != []

"""Every candidate is right, not just the winner: random genomes through the CPU backend."""

from __future__ import annotations

import random

import numpy as np
import pytest

from luminal.backends.cpu import device, target
from luminal.backends.reference import evaluate_with_bounds
from luminal.runtime.executable import Executable, Variant
from luminal.search.space import Space
from tests.fuzz.cpu_run import check_run
from tests.fuzz.graphs import Case, random_case
from tests.rules.programs import PROGRAMS, program

FEW, MANY = 20, 200
MOST_CHANGES = 8


def check_genomes(case: Case, count: int, seed: int, decisive: bool = False) -> None:
    """`count` random genomes of a graph agree with the reference; equal programs run once.

    `decisive`: the inputs are far from where a choice of experts falls the other way.
    """
    space = Space(case.graph, target.current())
    bounds = evaluate_with_bounds(case.graph, case.inputs, case.dims)
    if decisive:
        stable = {
            name: each._replace(unstable=np.zeros_like(each.unstable))
            for name, each in bounds.outputs.items()
        }
        bounds = bounds._replace(outputs=stable)
    rng = random.Random(seed)
    seen = set()
    for _ in range(count):
        genome = space.random_genome(rng, rng.randint(1, MOST_CHANGES))
        candidate = space.decode(genome)
        if candidate.text in seen:
            continue
        seen.add(candidate.text)
        runner = device.CpuRunner(candidate.program, space.target)
        exe = Executable(case.graph, (Variant({}, runner),))
        try:
            check_run(exe, runner, case, bounds=bounds)
        except AssertionError as error:
            raise AssertionError(f"genome {genome.to_json()}: {error}") from error


def case_of(name: str) -> Case:
    """One of the programs of the rule tests as a Case."""
    found = program(name)
    return Case(found.graph, found.inputs, found.dims, {})


@pytest.mark.parametrize("name", PROGRAMS)
def test_genomes(name: str) -> None:
    check_genomes(case_of(name), FEW, seed=1, decisive=name == "moe")


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_genomes(name: str) -> None:
    check_genomes(case_of(name), MANY, seed=2, decisive=name == "moe")


@pytest.mark.parametrize("seed", range(10))
def test_genomes_of_random_graphs(seed: int) -> None:
    check_genomes(random_case(seed), 4, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 60))
def test_many_genomes_of_random_graphs(seed: int) -> None:
    check_genomes(random_case(seed), 20, seed)

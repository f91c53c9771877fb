"""Random genomes of a graph, and the check that each computes what the reference does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from luminal.backends.cpu import backend
from luminal.backends.reference import Bounded, Results, evaluate_with_bounds
from luminal.base.numerics import Numerics
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.search.genome import Genome
from luminal.search.space import Move, Space
from tests.fuzz.cpu_run import check_run, run
from tests.fuzz.graphs import Case
from tests.numerics.tolerance import UNSTABLE_SHARE

Array = np.ndarray[Any, Any]
MOST_CHANGES = 8
LEAST_COMPARED = 32  # elements of a graph's results, at all sizes together
VAGUE = 8  # an error bound above this part of a result's size tells nothing


def check_genomes(
    cases: Sequence[Case],
    count: int,
    seed: int,
    decisive: bool = False,
    numerics: str = "standard",
    same_bits: bool = False,
    telling: bool = True,
) -> None:
    """`count` random genomes of a graph agree with the reference; equal programs run once.

    `cases`: the graph at several values of its dims. `decisive`: the inputs are far from where a
    choice of experts falls the other way. `same_bits`: all programs give those of the fast one.
    `telling`: a fault anywhere would show.
    """
    space = Space(cases[0].graph, backend.current(), Numerics(numerics))
    bounds = [bounds_of(case, decisive) for case in cases]
    if telling:
        assert_telling(bounds)
    rng = random.Random(seed)
    first: list[dict[str, Array]] = []
    seen = set()
    for number in range(count):
        changes = rng.randint(1, MOST_CHANGES)
        draw = space.random_genome if number % 2 else partial(walked, space)
        genome = draw(rng, changes) if number else Genome()
        candidate = space.decode(genome)
        if candidate.text in seen:
            continue
        seen.add(candidate.text)
        runner = space.backend.runner(candidate.program)
        exe = Executable(cases[0].graph, (Variant({}, runner),))
        try:
            for case, bound in zip(cases, bounds, strict=True):
                check_run(exe, runner, case, UNSTABLE_SHARE, bound)
            if same_bits:
                found = [run(exe, case, 1, None) for case in cases]
                first = first or found
                for expected, given in zip(first, found, strict=True):
                    for name, array in expected.items():
                        np.testing.assert_array_equal(given[name], array, name)
        except AssertionError as error:
            raise AssertionError(f"genome {genome.to_json()}: {error}") from error


def bounds_of(case: Case, decisive: bool) -> Results[Bounded]:
    """What the reference gives from the Case's first States."""
    case.reset()
    bounds = evaluate_with_bounds(case.graph, case.inputs, case.dims)
    if decisive:
        stable = {
            name: each._replace(unstable=np.zeros_like(each.unstable))
            for name, each in bounds.outputs.items()
        }
        bounds = bounds._replace(outputs=stable)
    return bounds


def assert_telling(bounds: Sequence[Results[Bounded]]) -> None:
    """Faults would show: nearly all elements are compared, and to bounds far below their size."""
    compared = 0
    for results in bounds:
        for name, found in (*results.outputs.items(), *results.states.items()):
            values = np.where(np.isfinite(found.value), found.value, 0).astype(np.float64)
            size = float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0
            vague = (found.error > size / VAGUE) if found.value.dtype.kind not in "biu" else False
            blind = found.unstable | vague
            share = float(np.mean(blind)) if blind.size else 0.0
            assert share <= UNSTABLE_SHARE, f"{name}: {share:.0%} of the elements tell nothing"
            compared += int(blind.size - blind.sum())
    assert compared >= LEAST_COMPARED, f"only {compared} elements are compared"


def walked_structure(space: Space, rng: random.Random, changes: int) -> Genome:
    """A genome of moves each of which starts from the program before."""
    genome = Genome()
    for _ in range(changes):
        genome = rng.choice(space.moves(space.decode(genome)) or [Move((), "")]).of(genome)
    return genome


def walked(space: Space, rng: random.Random, changes: int) -> Genome:
    """A walked structure with random schedules."""
    genome = walked_structure(space, rng, changes)
    candidate = space.decode(genome)
    origins = enumerate(candidate.stages.origins)
    return genome.with_tuned(
        {origin.name: rng.choice(space.knobs(candidate, kernel)) for kernel, origin in origins}
    )

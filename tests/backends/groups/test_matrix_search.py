"""Searches on the interpreted device with made-up matrix dots: they take the dot that is faster,
and whatever they may try computes what the graph means.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from luminal.program.launch_list import Program
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant
from luminal.search.genome import Genome
from luminal.search.space import Space
from tests.backends.groups.matrix_backend import backend, dots_of
from tests.backends.groups.product_graphs import case
from tests.backends.on_device import check_case
from tests.fuzz.genome_checks import walked
from tests.long_share import mostly_long
from tests.unit.search.invented_machine import Runner, make, product

NAMES = ("linear", "bf16", "both turned", "convolution", "gate and up",
         "batched", "rows chosen", "a sum over a dim", "factors computed", "strided")  # fmt: skip
MOST_CHANGES = 6


def count_of_dots(program: Program) -> int:
    return sum(bool(dots_of(kernel)) for kernel in program.kernels)


@pytest.mark.long
@pytest.mark.parametrize("like", mostly_long([False, True], 1))
def test_a_search_takes_the_dot_that_is_faster(tmp_path: Path, like: bool) -> None:
    """On machines that multiply matrices fast, or slowly, whatever is the rule."""
    runner = Runner(lambda p: 2.0 if bool(count_of_dots(p)) == like else 3.0)
    strategy = make(product(), tmp_path, runner, backend=backend(), max_candidates=60)
    strategy.run()
    assert strategy.best.seconds == 2.0
    assert bool(count_of_dots(strategy.best.candidate.program)) == like


def check(name: str, count: int, seed: int) -> int:
    """So many different programs that a search may come to; gives how many have matrix dots."""
    run, made, rng = case(name), backend(), random.Random(seed)
    space, seen, by_dots = Space(run.graph, made), set[str](), 0
    for number in range(20 * count):
        draw = space.random_genome if number % 2 else lambda r, n: walked(space, r, n)
        candidate = space.decode(draw(rng, rng.randint(1, MOST_CHANGES)) if number else Genome())
        if candidate.text in seen:
            continue
        seen.add(candidate.text)
        exe = Executable(run.graph, (Variant({}, made.runner(candidate.program)),))
        try:
            check_case(exe, run, 1.0)
        except Exception as error:
            error.add_note(f"genome {candidate.genome.to_json()}")
            raise
        by_dots += bool(count_of_dots(candidate.program))
        if len(seen) == count:
            break
    return by_dots


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES[:2])
def test_some_candidates_of_a_search(name: str) -> None:
    assert check(name, 6, 1) > 0


@pytest.mark.long
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("name", NAMES)
def test_two_thousand_candidates_of_searches(name: str, part: int) -> None:
    assert check(name, 40, 100 + part) > 0

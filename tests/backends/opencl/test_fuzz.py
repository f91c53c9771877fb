"""Random graphs on OpenCL: near the reference, States too, the same bits in every run."""

from __future__ import annotations

import pytest

from tests.backends.on_device import check_case
from tests.backends.opencl.devices import compiled
from tests.fuzz.graphs import random_case

CHUNK = 25


def check_seeds(seeds: range) -> None:
    for seed in seeds:
        case = random_case(seed)
        try:
            check_case(compiled(case.graph), case)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_few_cases_of_seeds() -> None:
    check_seeds(range(5))


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(12))
def test_cases_of_seeds(chunk: int) -> None:
    check_seeds(range(CHUNK * chunk, CHUNK * (chunk + 1)))

"""Random graphs on each device that is here: near the reference, the same bits in every run."""

from __future__ import annotations

import pytest

from luminal.backends import registry
from tests.backends.c_family.present import present
from tests.backends.on_device import check_case, compiled_on
from tests.fuzz.graphs import random_case

CHUNK = 25

pytestmark = pytest.mark.parametrize("name", present())


def check_seeds(name: str, seeds: range) -> None:
    for seed in seeds:
        case = random_case(seed)
        try:
            check_case(compiled_on(registry.compiling(name), case.graph), case)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_few_cases_of_seeds(name: str) -> None:
    check_seeds(name, range(5))


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(12))
def test_cases_of_seeds(name: str, chunk: int) -> None:
    check_seeds(name, range(CHUNK * chunk, CHUNK * (chunk + 1)))

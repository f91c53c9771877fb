"""Random graphs with dims, States and Loops on the interpreted device, near the reference."""

from __future__ import annotations

import pytest

from tests.backends.interpreted.devices import compiled
from tests.backends.on_device import check_case
from tests.fuzz.graphs import random_case

FEW, CHUNK = 6, 25


def check_seeds(seeds: range) -> None:
    for seed in seeds:
        case = random_case(seed)
        try:
            check_case(compiled(case.graph), case)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_few_cases_of_seeds() -> None:
    check_seeds(range(FEW))


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(8))
def test_cases_of_seeds(chunk: int) -> None:
    check_seeds(range(CHUNK * chunk, CHUNK * (chunk + 1)))

"""Random graphs on the CPU: near the reference, the same bits for one and two threads."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from luminal.base import config
from tests.fuzz.cpu_run import check, cut_small
from tests.fuzz.graphs import Case, cases, random_case
from tests.long_share import mostly_long
from tests.machines import NARROWER

CHUNK = 10


def check_seeds(seeds: range) -> None:
    for seed in seeds:
        try:
            check(random_case(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("chunk", mostly_long(range(200), 1))
def test_cases_of_seeds(chunk: int) -> None:
    check_seeds(range(CHUNK * chunk, CHUNK * (chunk + 1)))


@pytest.mark.parametrize("chunk", mostly_long(range(5), 1))
def test_cases_of_seeds_of_a_narrower_machine(chunk: int) -> None:
    with config.override(LUMINAL_TARGET=NARROWER):
        check_seeds(range(1000 + CHUNK * chunk, 1000 + CHUNK * (chunk + 1)))


@pytest.mark.parametrize("chunk", mostly_long(range(5), 1))
def test_cases_of_seeds_in_small_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch)
    check_seeds(range(2000 + CHUNK * chunk, 2000 + CHUNK * (chunk + 1)))


@given(case=cases())
@settings(max_examples=10, derandomize=True, suppress_health_check=list(HealthCheck))
def test_cases_of_hypothesis(case: Case) -> None:
    check(case)

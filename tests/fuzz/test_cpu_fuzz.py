"""Random graphs on the CPU: near the reference, the same bits for one and two threads."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from luminal import config
from luminal.kernel import opaque, schedule
from luminal.select import fast, split
from tests.fuzz.cpu_run import check
from tests.fuzz.graphs import Case, cases, random_case

CHUNK = 25
SMALL = {  # so that small graphs are cut into chunks, packed, split and stored as large ones are
    schedule: {"CHUNK_WORK": 16, "SMALL_CONTRACTION": 64, "LARGE_CONTRACTION": 256, "PACK_ROWS": 2},
    opaque: {"CHUNK_WORK": 16},
    split: {"MIN_CHUNK": 2, "CHUNKS": 3, "MUCH_WORK": 8},
    fast: {"MUCH_WORK": 8, "LAUNCH_WORK": 16, "ROW_BYTES": 64},
}


def check_seeds(seeds: range) -> None:
    for seed in seeds:
        try:
            check(random_case(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("chunk", range(8))
def test_cases_of_seeds(chunk: int) -> None:
    check_seeds(range(CHUNK * chunk, CHUNK * (chunk + 1)))


@pytest.mark.parametrize("chunk", range(2))
def test_cases_of_seeds_in_avx2(chunk: int) -> None:
    with config.override(LUMINAL_TARGET="avx2"):
        check_seeds(range(1000 + CHUNK * chunk, 1000 + CHUNK * (chunk + 1)))


@pytest.mark.parametrize("chunk", range(2))
def test_cases_of_seeds_in_small_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, values in SMALL.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    check_seeds(range(2000 + CHUNK * chunk, 2000 + CHUNK * (chunk + 1)))


@given(case=cases())
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_cases_of_hypothesis(case: Case) -> None:
    check(case)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(8, 80))
def test_many_cases_of_seeds(chunk: int) -> None:
    check_seeds(range(CHUNK * chunk, CHUNK * (chunk + 1)))

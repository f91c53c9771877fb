"""Whatever is recorded, read, written and shared in between: arrays have the values they should."""

from __future__ import annotations

import pytest

import luminal as lm
from luminal.array_api import deferred
from tests.fuzz.array_steps import Steps
from tests.long_share import mostly_long


@pytest.fixture
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = lm.Graph("arrays")
    graph._backend = "reference"
    monkeypatch.setattr(deferred, "programs", graph._parts_on_demand(64))
    monkeypatch.setattr(deferred, "MAX_NODES", 40)
    monkeypatch.setattr(deferred, "MAX_DEPTH", 6)
    monkeypatch.setattr(deferred._of_thread, "chain", None, raising=False)


@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize("seed", mostly_long(range(12), 5))
def test_random_steps(seed: int) -> None:
    _run(seed, 150)


@pytest.mark.long
@pytest.mark.usefixtures("_interpreted")
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_steps(seed: int) -> None:
    _run(seed, 300)


def _run(seed: int, count: int) -> None:
    steps = Steps(seed)
    for _ in range(count):
        steps.step()
    steps.check()

"""What tests of numbers share: the backends on which one test runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import luminal as lm
from luminal.array_api import deferred
from tests.backends.c_family.offline import COMPILERS, compiling
from tests.backends.c_family.present import PRESENT
from tests.numerics.recording import on

BACKENDS = (
    "reference",
    "cpu",
    *(pytest.param(name, marks=pytest.mark.long) for name in PRESENT),
    *(pytest.param(f"{name} compiles", marks=pytest.mark.long) for name in COMPILERS),
)
"""What `every_backend` runs a file's tests on. The last compile every kernel for chips that are not
here, and go on by the reference (see `tests.backends.c_family.offline`).
"""


@pytest.fixture(params=["reference", "cpu"])
def each_backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has what a test records run on the oracle, and once more on the CPU."""
    with on(request.param):
        yield


@pytest.fixture(params=BACKENDS)
def every_backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has what a test records run on the oracle, on the CPU, and on the devices that are here."""
    name, _, compiles = request.param.partition(" ")
    with compiling(name) if compiles else on(name):
        yield


@pytest.fixture
def interpreted_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains of `lm.array_api` run on the reference backend: nothing is compiled."""
    graph = lm.Graph("arrays")
    graph._backend = "reference"
    monkeypatch.setattr(deferred, "programs", graph._parts_on_demand(64))
    monkeypatch.setattr(deferred._of_thread, "chain", None, raising=False)

"""The kernels that these files write run in two ways: compiled, and by the interpreters of IRs."""

from __future__ import annotations

import pytest

from tests.backends.cpu import tile_builder
from tests.expand.both_meanings import run_expanded

WRITTEN = ("test_render_fuzz", "test_render_map", "test_render_memory", "test_render_reduce")
SAMPLE = 14  # of so many kernels the short tests interpret one


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How `run_all` runs a kernel."""
    if request.param == "expanded":
        monkeypatch.setattr(tile_builder, "RUNS", [run_expanded])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test once by each way."""
    if metafunc.module.__name__.rpartition(".")[2] in WRITTEN:
        metafunc.fixturenames.append("way")
        metafunc.parametrize("way", ["compiled", "expanded"], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Most kernels are interpreted in long tests only."""
    ways = [getattr(item, "callspec", None) for item in items]
    expanded = [
        item
        for item, spec in zip(items, ways, strict=True)
        if spec is not None and spec.params.get("way") == "expanded"
    ]
    for number, item in enumerate(expanded):
        if number % SAMPLE:
            item.add_marker(pytest.mark.long)

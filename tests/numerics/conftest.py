"""What tests of numbers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.numerics.recording import on


@pytest.fixture(params=["reference", "cpu"])
def each_backend(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has what a test records run on the oracle, and once more on the CPU."""
    with on(request.param):
        yield

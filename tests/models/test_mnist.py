"""A CNN with weights trained by PyTorch, on real digits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.digits import check_digits


@pytest.mark.parametrize(
    ("backend", "count"),
    [("reference", 20), ("cpu", 1000), pytest.param("cpu", 10000, marks=pytest.mark.long)],
)
def test_accuracy(shared_data: Path, backend: str, count: int) -> None:
    check_digits(shared_data, backend, count)

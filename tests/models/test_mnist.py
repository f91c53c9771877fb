"""A CNN with weights trained by PyTorch, on real digits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.long_share import long_rows
from tests.models.digits import check_digits


@pytest.mark.parametrize(
    ("backend", "count"),
    long_rows([("reference", 20), ("cpu", 1000), ("cpu", 10000)], [("cpu", 1000)]),
)
def test_accuracy(shared_data: Path, backend: str, count: int) -> None:
    check_digits(shared_data, backend, count)

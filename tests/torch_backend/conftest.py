"""What tests of `torch.compile` start from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def fresh() -> Iterator[None]:
    """Nothing compiled by Dynamo before, and one sequence of random numbers."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()

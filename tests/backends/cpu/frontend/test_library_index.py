"""Movement, indexing, sorting and random numbers again, on the CPU backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.numerics.recording import on
from tests.numerics.test_library_index import *  # noqa: F403
from tests.numerics.test_library_index_positions import *  # noqa: F403
from tests.numerics.test_random import *  # noqa: F403


@pytest.fixture(autouse=True)
def _on_cpu() -> Iterator[None]:
    with on("cpu"):
        yield

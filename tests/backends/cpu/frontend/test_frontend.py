"""The frontend's numerics tests again, on the CPU backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.numerics.recording import on
from tests.numerics.test_frontend_creation import *  # noqa: F403
from tests.numerics.test_frontend_indexing import *  # noqa: F403
from tests.numerics.test_frontend_linalg import *  # noqa: F403
from tests.numerics.test_frontend_movement import *  # noqa: F403
from tests.numerics.test_frontend_pointwise import *  # noqa: F403
from tests.numerics.test_frontend_reduce import *  # noqa: F403
from tests.numerics.test_frontend_scan import *  # noqa: F403
from tests.numerics.test_nn import *  # noqa: F403

del test_any_subscript_like_numpy  # noqa: F821  (200 compilations say little of the CPU)


@pytest.fixture(autouse=True)
def _on_cpu() -> Iterator[None]:
    with on("cpu"):
        yield

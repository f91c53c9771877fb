"""The numerics tests of the frontend and the library again, on OpenCL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.opencl import devices  # noqa: F401  skips where there is none
from tests.numerics.recording import on
from tests.numerics.test_frontend_creation import *  # noqa: F403
from tests.numerics.test_frontend_indexing import *  # noqa: F403
from tests.numerics.test_frontend_linalg import *  # noqa: F403
from tests.numerics.test_frontend_movement import *  # noqa: F403
from tests.numerics.test_frontend_pointwise import *  # noqa: F403
from tests.numerics.test_frontend_reduce import *  # noqa: F403
from tests.numerics.test_frontend_scan import *  # noqa: F403
from tests.numerics.test_library_index import *  # noqa: F403
from tests.numerics.test_library_index_positions import *  # noqa: F403
from tests.numerics.test_nn import *  # noqa: F403
from tests.numerics.test_random import *  # noqa: F403

del test_any_subscript_like_numpy  # noqa: F821  (200 compilations say little of a device)

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _on_opencl() -> Iterator[None]:
    with on("opencl"):
        yield

"""The numerics tests of the frontend and the library again, on each device that is here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.c_family.present import present
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


@pytest.fixture(autouse=True, params=present())
def _on_a_device(request: pytest.FixtureRequest) -> Iterator[None]:
    with on(request.param):
        yield

"""One small server for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.running import Running, make_served, running


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    """A server without keys."""
    with running(make_served()) as found:
        yield found


@pytest.fixture(scope="session")
def client(server: Running) -> Iterator[Any]:
    """OpenAI's client of it."""
    with server.client() as found:
        yield found

"""The driver of each device that is here."""

from __future__ import annotations

import pytest

from luminal.runtime.driver import Driver
from tests.backends.c_family import present
from tests.backends.c_family.driver_cases import DriverCases


@pytest.fixture(params=present.present())
def driver(request: pytest.FixtureRequest) -> Driver:
    return present.driver(request.param)


class TestDevice(DriverCases):
    """All that `driver_cases.py` asks of every driver."""

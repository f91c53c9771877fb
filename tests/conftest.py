"""What every test gets: verifiers on, and the folder of real inputs where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from luminal import config

SHARED_DATA = Path(__file__).resolve().parents[1] / "../shared/data"


@pytest.fixture(scope="session", autouse=True)
def _verifiers_on() -> Iterator[None]:
    with config.override(LUMINAL_VERIFY=True):
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real checkpoints and data sets (not part of the project)."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no ../shared/data with real checkpoints")
    return SHARED_DATA

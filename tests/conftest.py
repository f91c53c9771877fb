"""What every test gets: verifiers and poison on, and the folder of real inputs if there is one.

Most tests are compiles of a few milliseconds: what slows all of them a little counts.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import luminal as lm
from luminal.backends.cpu import ahead, peaks
from luminal.backends.cpu.ahead import Ahead
from luminal.base import config, garbage
from tests import long_share
from tests.crashes import pytest_runtest_setup, pytest_xdist_make_scheduler
from tests.long_share import (
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_report_header,
)

__all__ = [
    "pytest_collection_modifyitems", "pytest_configure", "pytest_report_header",
    "pytest_runtest_setup", "pytest_xdist_make_scheduler",
]  # hooks  # fmt: skip

SHARED_DATA = Path(__file__).resolve().parents[1] / "../shared/data"

# What is chosen is asked for two cores; and each core has a process of tests.
os.environ.setdefault("LUMINAL_THREADS", str(min(2, os.cpu_count() or 1)))

# A machine that is busy is no fault of what is tested.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Hypothesis would draw the numbers of our own sources too, and takes seconds to read them all.
providers._get_local_constants = lambda: providers._local_constants


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden texts anew instead of comparing"
    )
    long_share.pytest_addoption(parser)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """What is imported and collected stays to the end: the collector never walks it again. It comes
    more rarely, too: what a compile leaves to it is little, and took 6% of all time to find.
    """
    with garbage.held():
        result = yield
        gc.freeze()
    gc.set_threshold(20_000)
    return result


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden texts are to be written anew."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="module", autouse=True)
def _nothing_to_walk_for_others() -> Iterator[None]:
    """A file's garbage goes with it, and the collector never again walks what is left: after some
    thousand tests, imports and caches take it two seconds.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _alone_on_a_core(request: pytest.FixtureRequest) -> None:
    if hasattr(request.config, "workerinput"):  # each core has a process of tests
        ahead.MOST_HELPERS = 0
        ahead.ahead = Ahead()


@pytest.fixture(scope="session", autouse=True)
def _checks_on() -> Iterator[None]:
    # Four times the last cache is 1 GiB on servers, seconds to map; reports alone have the speed.
    peaks.MEMORY_BYTES = (64 << 20, 64 << 20)
    with config.override(LUMINAL_VERIFY=True, LUMINAL_POISON=True):
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real checkpoints and data sets (not part of the project)."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no ../shared/data with real checkpoints")
    return SHARED_DATA


@pytest.fixture
def new_default_graph() -> Iterator[None]:
    """Nothing recorded in the default graph, before and after."""
    lm.reset()
    yield
    lm.reset()

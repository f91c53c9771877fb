"""Two processes collect from two ends: of what one has made bytecode of, the other reads it.

pytest rewrites the asserts of each test file when it is first read, half of the time that
collecting takes in a new checkout. The order of tests stays.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import groupby
from typing import Any

import pytest


def from_the_end(config: pytest.Config) -> bool:
    """Whether this is every other process: gw1, gw3 and so on."""
    worker = getattr(config, "workerinput", {}).get("workerid", "gw0")
    return int(worker.removeprefix("gw")) % 2 == 1


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Files and folders from the last to the first."""
    report = yield
    if isinstance(collector, pytest.Session | pytest.Directory) and from_the_end(collector.config):
        report.result = [*reversed(report.result or [])]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The files' order is the same again: all processes must have one."""
    if from_the_end(config):
        files: list[list[Any]] = [[*tests] for _, tests in groupby(items, lambda item: item.path)]
        items[:] = [item for tests in reversed(files) for item in tests]

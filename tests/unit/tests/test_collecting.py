"""Every other process reads files from the last on, and all of them run one order of tests."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
from tests import collecting

def pytest_configure(config):
    config.workerinput = {"workerid": WORKER}
    config.pluginmanager.register(collecting)
"""
TESTS = """
import pathlib

with open(pathlib.Path(__file__).parents[PARENT] / "read", "a") as file:
    file.write(__name__[-1])

def test_b(): pass
def test_a(): pass
"""


@pytest.mark.parametrize(("worker", "expected"), [("gw0", "abcd"), ("gw1", "dcba")])
def test_files_are_read_from_two_ends(
    worker: str, expected: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds
    pytester.makeconftest(CONFTEST.replace("WORKER", repr(worker)))
    names = ["one/test_a", "one/test_b", "test_c", "two/test_d"]
    for name in names:
        path = pytester.path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(TESTS.replace("PARENT", str(name.count("/"))))
    reports = pytester.inline_run().getreports("pytest_runtest_logreport")
    ran = [each.nodeid for each in reports if each.when == "call"]
    assert ran == [f"{name}.py::{test}" for name in names for test in ("test_b", "test_a")]
    assert (pytester.path / "read").read_text() == expected

"""The shares of the long and of the slow tests: every one is met once, other short tests always."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.long_share import Share
from tests.slow import file_of, functions

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.mark.long
@pytest.mark.parametrize("k", range(60))
def test_long(k):
    pass

@pytest.mark.parametrize("k", range(3))
def test_short(k):
    pass
"""
SETTINGS = """
[pytest]
addopts = -m "not long"
markers = long: as here
"""
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with tests and the hooks of this one."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds
    pytester.makeconftest("from tests.long_share import *")
    pytester.makeini(SETTINGS)
    pytester.makepyfile(test_some=TESTS)
    return pytester


def ran(project: pytest.Pytester, *arguments: str) -> Counter[str]:
    reports = project.inline_run(*arguments).getreports("pytest_runtest_logreport")
    return Counter(each.nodeid for each in reports if each.when == "call")


def test_ten_shares_hold_every_long_test_once(project: pytest.Pytester) -> None:
    shares = [ran(project, "--long-share", f"{k}/10") for k in range(10)]
    total = sum(shares, Counter())
    short = {name: n for name, n in total.items() if "short" in name}
    assert len(total) == 63
    assert set(short.values()) == {10}
    assert len(short) == 3
    assert all(n == 1 for name, n in total.items() if name not in short)
    assert {sum(share.values()) for share in shares} == {6 + 3}  # 60 tests of a function


def test_without_a_share_only_short_tests_run(project: pytest.Pytester) -> None:
    assert len(ran(project)) == 3
    assert len(ran(project, "-m", "long")) == 60
    assert len(ran(project, "-m", "long", "--long-share", "3/10")) == 6


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A list that names the short tests above, and one that is gone."""
    path = tmp_path / "slow.txt"
    path.write_text("test_some.py::test_short\ntest_some.py::test_gone\n")
    monkeypatch.setattr("tests.slow.LIST", path)
    functions.cache_clear()
    yield path
    functions.cache_clear()


@pytest.mark.usefixtures("slow")
def test_shares_hold_every_slow_test_once(project: pytest.Pytester) -> None:
    shares = [ran(project, "--slow-share", f"{k}/2") for k in range(2)]
    assert sorted(sum(share.values()) for share in shares) == [1, 2]
    assert sum(shares, Counter()) == ran(project)
    both = ran(project, "--slow-share", "0/2", "--long-share", "0/10")
    assert sum(both.values()) == sum(shares[0].values()) + 6


def test_what_takes_long_is_written(
    project: pytest.Pytester, slow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.slow.SECONDS", 0.0)
    ran(project, "--write-slow", "-m", "long", "--long-share", "0/10")
    names = ["gone", "long", "short"]
    assert slow.read_text() == "".join(f"test_some.py::test_{name}\n" for name in names)
    functions.cache_clear()
    monkeypatch.setattr("tests.slow.SECONDS", 10.0)
    ran(project, "--write-slow", "-m", "")
    assert slow.read_text() == "test_some.py::test_gone\n"


def test_slow_tests_are_there() -> None:
    names = functions()
    assert len(names) > 100
    texts = {name: (ROOT / name).read_text("utf-8") for name in set(map(file_of, names))}
    for name in names:
        assert re.search(rf"\b{name.split('::')[1]}\b", texts[file_of(name)]), name


def test_names_decide_and_nothing_else() -> None:
    assert [k for k in range(10) if Share(k, 10).has("tests/a.py::test[b-3]")] == [1]


@pytest.mark.parametrize("text", ["10/10", "3", "-1/10", "a/b", "3/", ""])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match=r"--long-share .*takes a share and their number"):
        Share.parse("--long-share", text)


def test_the_shares_of_ci_turn_with_the_days() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    found = re.search(r"date \+%s\) / 86400 % (\d+)", script)
    assert found is not None
    assert script.rstrip().endswith(f'make test ARGS="--long-share $share/{found[1]}"')

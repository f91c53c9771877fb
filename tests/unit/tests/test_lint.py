"""The lints of the source: each finds what is planted, and passes over what is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lint import docstrings, tolerances, unused

PAGE = '''"""A module of one function."""


def area(width: int) -> int:
    """{text}"""
    return width
'''


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("The area of a square of this width.", None),
        ("Asks for the width; offers no default.", None),
        ("Of it; its whole is extrapolated.", "begins with 'Of'"),
        ("As the protocol says of it.", "begins with 'As'"),
        ("The same, of a square of squares.", "begins with 'The same'"),
        ("The area.", "has fewer than 4 words"),
        ("The area of a square", "does not end a sentence"),
    ],
)
def test_docstrings_that_do_not_stand_alone(text: str, fault: str | None, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(PAGE.format(text=text))
    found = [line for line in docstrings.faults(tmp_path) if line.startswith("module.py")]
    assert len(found) == (fault is not None)
    assert all(str(fault) in line for line in found)


def test_help_texts_are_docstrings_too(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text('option = Option("--of", help="Of its weights.")\n')
    assert any("help" in line for line in docstrings.faults(tmp_path))


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("    found = 1", "found"),
        ("    return [each for each in range(2)]", "each"),
        ("    print(self.found)", None),
    ],
)
def test_locals_that_name_no_thing(line: str, name: str | None, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(f"def shown(self):\n{line}\n")
    lines = [line for line in docstrings.faults(tmp_path) if "names no thing" in line]
    assert lines == [f"module.py:1: shown: the local {name!r} names no thing"] * (name is not None)


@pytest.mark.parametrize("more", [0, 1])
def test_functions_that_are_too_long(more: int, tmp_path: Path) -> None:
    body = "    print()\n" * (docstrings.MOST_LINES - 1 + more)
    (tmp_path / "module.py").write_text(f"def shown() -> None:\n{body}")
    found = [line for line in docstrings.faults(tmp_path) if "lines" in line]
    assert found == ["module.py:1: shown has 61 lines, of at most 60"] * more


USED = '''"""A module."""

import enum
from typing import NamedTuple

from package.other import again

LIMIT = 3


class Kind(enum.Enum):
    """A kind of thing."""

    PLAIN = "plain"
    ODD = "odd"

    def shown(self) -> str:
        return shown(self)


class Pair(NamedTuple):
    """Two numbers, read by position."""

    first: int
    second: int


def shown(kind: Kind) -> str:
    return kind.shown()


def endless(n: int) -> int:
    return endless(n - 1)


def told(kind: Kind) -> Pair:
    return Pair(kind is Kind.PLAIN, again("told"))
'''


def test_what_nothing_uses_is_found(tmp_path: Path) -> None:
    """A constant, a member, a method and a function that only know each other, a recursion."""
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (package / "module.py").write_text(USED)
    (package / "other.py").write_text(
        'def again(name: str) -> int:\n    return getattr(0, "real")\n'
    )
    public = tmp_path / "public.txt"
    public.write_text("package.module told\n")
    dead = unused.unused(tmp_path / "src", public)
    assert [d.text.removeprefix("package.module:") for d in dead] == [
        "LIMIT", "Kind.ODD", "Kind.shown", "shown", "endless",
    ]  # fmt: skip
    exceptions = {"package.module:Kind": "seen", "package.module:Pair": "none", "package.mod": "no"}
    assert unused.faults(dead, exceptions) == [
        "package.module:LIMIT is not used",
        "package.module:shown is not used",
        "package.module:endless is not used",
        "package.module:Pair is used: take it from the exceptions",
        "package.mod is used: take it from the exceptions",
    ]


def test_no_test_file_imports_another() -> None:
    """What tests share stands in modules beside them: a file of tests can be moved or deleted."""
    tests = docstrings.ROOT / "tests"
    imported = re.compile(
        r"^\s*(from tests\S*\.test_\w+ import|from tests\S* import .*\btest_)", re.M
    )
    assert [p.name for p in tests.rglob("*.py") if imported.search(p.read_text())] == []


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        ("assert_allclose(x, y, rtol=1e-5, atol=1e-6)", ["1e-05", "1e-06"]),
        ("np.testing.assert_allclose(x, y, 1e-5)", ["1e-05"]),
        ("agree(x, y, atol=1e-6 * np.abs(y).max())", ["1e-06 * np.abs(y).max()"]),
        ("assert x == pytest.approx(y, abs=0.1)", ["0.1"]),
        ("TOLERANCE = 1e-4", ["0.0001"]),
        ("allclose(x, y, 1e-5)  # noqa: E501", ["1e-05"]),
        ("allclose(x, y, 1e-5)  # a sum of 100 terms", []),
        ("# a sum of 100 terms\nassert allclose(\n    x, y,\n    rtol=1e-5,\n)", []),
        ("allclose(x, y, rtol=TOLERANCE, atol=0)", []),
        ("value = other(x, 0.1, abs=0.1)", []),
    ],
)
def test_tolerances_without_a_reason(lines: str, values: list[str]) -> None:
    assert [value for _, value in tolerances.faults(lines)] == values

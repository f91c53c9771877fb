"""The mutation run: its mutants are the ones meant, each survivor is explained, few survive."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path

import pytest

from tests.mutants import everywhere
from tests.mutants.mutate import key_of, keys, mutants
from tests.mutants.reach import BEACON, Notes, of_notes, with_beacons
from tests.mutants.results import survivors, table
from tests.mutants.run import ROOT
from tests.mutants.subjects import SUBJECTS

SOURCE = '''
def wanted(a: int, b: list[int]) -> bool:
    """Text."""
    if not a:
        raise ValueError(f"{a} is {a + 1}")
    return a < 3 and any(b[1:])
'''


def changes(source: str) -> list[str]:
    return [mutant.name.partition(": ")[2] for mutant in mutants("m.py", source)]


def test_every_small_change_is_made_once() -> None:
    assert changes(SOURCE) == [
        "not a -> a",
        "raise ValueError(f'{a} is {a + 1}') -> pass",
        "a < 3 and any(b[1:]) -> a < 3 or any(b[1:])",
        "a < 3 and any(b[1:]) -> any(b[1:])",
        "a < 3 and any(b[1:]) -> a < 3",
        "_ < _ -> _ <= _",
        "_ < _ -> _ >= _",
        "3 -> 4",
        "any(b[1:]) -> all(b[1:])",
        "b[1:] -> b[:]",
        "1 -> 2",
    ]


def test_a_mutant_is_the_module_with_one_change() -> None:
    plain = ast.unparse(ast.parse(SOURCE))
    for mutant in mutants("m.py", SOURCE):
        before, after = plain.splitlines(), mutant.source.splitlines()
        assert len(before) == len(after)
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_lines_above_change_no_key() -> None:
    keys = [[m.key for m in mutants("m.py", text)] for text in (SOURCE, "import os\n\n" + SOURCE)]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == len(keys[0])


def test_faults_that_were_once_planted_are_among_them() -> None:
    for file, fault in (
        ("src/luminal/program/launch_list.py", "or read & writes -> written & (reads | writes)"),
        ("src/luminal/models/choice.py", "_leading.lowered: _ < _ -> _ <= _"),
        ("src/luminal/search/measure.py", "0.02 -> 0.04"),
    ):
        found = [m.name for m in mutants(file, (ROOT / file).read_text())]
        assert any(fault in name for name in found), (file, fault)


def test_what_subjects_name_is_there() -> None:
    for subject in SUBJECTS:
        for name in (*subject.files, *subject.tests):
            assert (ROOT / name.partition("::")[0]).exists(), name


NESTED = """
LIMIT = 1
def f(x):
    "Says what."
    if x > LIMIT:
        y = 1
    else:
        y = 2
    try:
        return y
    except ValueError:
        x = 3
"""


def test_keys_are_those_of_the_mutants() -> None:
    assert keys("m.py", SOURCE) == [mutant.key for mutant in mutants("m.py", SOURCE)]


def test_every_file_of_the_package_has_tests_that_are_there() -> None:
    files = [file for subject in everywhere.subjects() for file in subject.files]
    found = (ROOT / everywhere.PACKAGE).rglob("*.py")
    assert sorted(files) == sorted(path.relative_to(ROOT).as_posix() for path in found)
    assert set(everywhere.TESTS) <= {everywhere.folder_of(file) for file in files}
    for tests in everywhere.TESTS.values():
        assert all((ROOT / name).is_dir() for name in tests)


def test_parts_of_the_sample_are_the_sample() -> None:
    files = SUBJECTS[0].files + SUBJECTS[1].files
    among = {file: keys(file, (ROOT / file).read_text()) for file in files}
    whole = {m.key for m in everywhere.sample(among, 40, 1, 1)}
    assert whole == set(sorted(key for found in among.values() for key in found)[:40])
    parts = [{m.key for m in everywhere.sample(among, 40, k, 4)} for k in (1, 2, 3, 4)]
    assert [len(part) for part in parts] == [10] * 4
    assert set().union(*parts) == whole


def test_beacons_stand_before_the_statements_of_functions() -> None:
    marked = with_beacons(NESTED, {2: ["import"], 5: ["a"], 8: ["b"], 10: ["c"], 12: ["d"]})
    lines = [line.strip() for line in marked.splitlines()]
    after = {
        key: lines[k + 1]
        for key in ("import", "a", "b", "c", "d")
        for k, line in enumerate(lines)
        if BEACON in line and f"['{key}']" in line
    }
    assert after == {"a": "if x > LIMIT:", "b": "y = 2", "c": "return y", "d": "x = 3"}
    assert ast.dump(ast.parse(with_beacons(NESTED, {}))) == ast.dump(ast.parse(NESTED))


def test_a_run_tells_who_reaches_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, BEACON, None, raising=False)  # this may be such a run
    notes = Notes(tmp_path / "notes.tsv")
    for test in ("tests/m.py::one", "tests/m.py::two"):
        notes.test = test
        notes.pytest_runtest_setup()
        notes.pytest_runtest_call()
        notes.reached(["k"])
        notes.reached(["k"])
    notes.pytest_runtest_setup()
    notes.reached(["in setup"])
    rows = [line.split("\t") for line in (tmp_path / "notes.tsv").read_text().splitlines()]
    assert rows == [["k", "tests/m.py::one"], ["k", "tests/m.py::two"], ["in setup", "tests/m.py"]]
    seconds = {"tests/m.py::one": 2.0, "tests/m.py::two": 1.0, "tests/n.py::x": 4.0}
    assert of_notes(["tests/m.py::one", "tests/m.py::two"], seconds) == (
        ("tests/m.py::two", "tests/m.py::one"), 3.0)  # fmt: skip
    assert of_notes(["tests/n.py::x", "tests/m.py::one", "tests/m.py"], seconds) == (
        ("tests/m.py", "tests/n.py::x"), 7.0)  # fmt: skip


def test_few_survive_and_each_is_explained() -> None:
    rows = table()
    assert all(row.unexplained == 0 for row in rows)
    assert {row.subject for row in rows} <= {"all", *(subject.name for subject in SUBJECTS)}
    names = {subject.name for subject in (*SUBJECTS, *everywhere.subjects())}
    for survivor in survivors():
        assert survivor.subject in names
        assert survivor.reason
        assert survivor.key == key_of(survivor.name)

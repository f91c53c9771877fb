"""The mutation run: its mutants are the ones meant, each survivor is explained, few survive."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants import beacon
from tests.mutants.__main__ import sample_of
from tests.mutants.everywhere import PACKAGE, by_folder, everywhere
from tests.mutants.mutate import key_of, keys, mutants
from tests.mutants.reach import MOST_SECONDS, Notes, of_notes, with_beacons
from tests.mutants.results import survivors, table
from tests.mutants.run import MODULE, ROOT
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


def test_the_sample_of_the_package_is_of_all_its_files_and_all_tests() -> None:
    found = (ROOT / PACKAGE).rglob("*.py")
    assert sorted(everywhere().files) == sorted(p.relative_to(ROOT).as_posix() for p in found)
    assert {"tests/unit", "tests/numerics", "tests/torch_backend"} < set(everywhere().tests)


def test_a_sample_has_the_lowest_keys() -> None:
    subject = SUBJECTS[0]
    every = [m.key for f in subject.files for m in mutants(f, (ROOT / f).read_text())]
    assert [m.key for m in sample_of(subject, 7)] == sorted(every)[:7]


def test_survivors_are_counted_by_folder() -> None:
    one = mutants(f"{PACKAGE}/expand/m.py", SOURCE)[:3]
    other = mutants(f"{PACKAGE}/m.py", SOURCE)[:2]
    assert by_folder([*one, *other], other[:1]) == "expand 0 of 3, package 1 of 2"


def test_beacons_stand_before_the_statements_of_functions() -> None:
    marked = with_beacons(NESTED, {2: ["import"], 5: ["a"], 8: ["b"], 10: ["c"], 12: ["d"]})
    lines = [line.strip() for line in marked.splitlines()]
    after = {
        key: lines[k + 1]
        for key in ("import", "a", "b", "c", "d")
        for k, line in enumerate(lines)
        if MODULE in line and f"['{key}']" in line
    }
    assert after == {"a": "if x > LIMIT:", "b": "y = 2", "c": "return y", "d": "x = 3"}
    assert ast.dump(ast.parse(with_beacons(NESTED, {}))) == ast.dump(ast.parse(NESTED))


def test_a_beacon_names_the_test_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beacon, "seen", set())
    monkeypatch.setenv(beacon.NOTES, str(tmp_path / "notes.tsv"))
    for test in ("tests/m.py::a b (call)", "tests/m.py::two (call)", "tests/m.py::two (setup)"):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
        beacon.seen.clear()
        beacon.reached(["k"])
        beacon.reached(["k"])
    rows = (tmp_path / "notes.tsv").read_text().splitlines()
    assert rows == ["k\ttests/m.py::a b", "k\ttests/m.py::two", "k\ttests/m.py"]
    monkeypatch.delenv(beacon.NOTES)
    beacon.reached(["other"])  # a process that was told nothing


def test_notes_are_kept_file_by_file_once_they_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(beacon.NOTES, "")  # is put back at the end
    kept = {name: tmp_path / f"{name}.tsv" for name in ("m", "n", "long")}
    notes = Notes(kept)
    for part in ("m", "n", "m"):
        notes.enter(part)
        beacon.note("in", part)
    assert not kept["m"].exists()
    notes.pytest_sessionfinish(pytest.ExitCode.INTERRUPTED)
    assert not kept["long"].exists()
    notes.pytest_sessionfinish(pytest.ExitCode.OK)
    assert [path.read_text() for path in kept.values()] == ["in\tm\n" * 2, "in\tn\n", ""]


def test_tests_of_the_folder_come_first_then_the_quickest() -> None:
    seconds = {"tests/m.py::one": 2.0, "tests/m.py::two": 1.0, "tests/cpu/n.py::x": 4.0}
    noted = {"tests/m.py::one", "tests/cpu/n.py"}
    assert of_notes({"tests/m.py"}, seconds, "src/luminal/cpu/f.py") == (
        ("tests/m.py::two", "tests/m.py::one"), 3.0)  # fmt: skip
    assert of_notes(noted, seconds, "src/luminal/cpu/f.py") == (
        ("tests/cpu/n.py::x", "tests/m.py::one"), 6.0)  # fmt: skip
    many = {f"tests/m.py::{k}": MOST_SECONDS / 3 for k in range(9)}
    assert len(of_notes({"tests/m.py"}, many, "src/luminal/f.py").tests) == 3


def test_few_survive_and_each_is_explained() -> None:
    rows = table()
    assert all(row.unexplained == 0 for row in rows)
    names = {"all", *(subject.name for subject in SUBJECTS)}
    assert {row.subject for row in rows} <= names
    for survivor in survivors():
        assert survivor.subject in names
        assert survivor.reason
        assert survivor.key == key_of(survivor.name)

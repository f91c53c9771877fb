"""Which tests reach a mutant: the only ones that can notice it, and so the first to be run.

One run of the tests as they are, over modules with a beacon before each statement of the sample:
a beacon notes the test that is running, in its own process or in one that it started. A sample of
400 in a package of 60,000 is then examined in an hour, where all tests a mutant would take a month.
What runs in the setup of a test may belong to a fixture that others share, so it stands for all
tests of the file; what runs while a module is imported is reached by all tests.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutants import beacon
from tests.mutants.mutate import Mutant
from tests.mutants.run import MODULE, ROOT, WORK, Tree, run

MOST_SECONDS = 150.0  # CPU time of the tests of one mutant, as they are
RAN = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


class Reach(NamedTuple):
    """The tests that reach a mutant, and the CPU seconds that they take as they are."""

    tests: tuple[str, ...]
    seconds: float


def with_beacons(source: str, lines: dict[int, list[str]]) -> str:
    """The source with a beacon before the statement around each line, for the keys named there.

    Lines of statements that run while the module is imported get none.
    """
    tree = ast.parse(source)
    places = [(place, keys) for line, keys in lines.items() if (place := _place(tree, line))]
    for (body, statement), keys in places:
        call = f"__import__({MODULE!r}).reached({keys!r})"
        body.insert(body.index(statement), ast.parse(call).body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _place(tree: ast.Module, line: int) -> tuple[list[ast.stmt], ast.stmt] | None:
    """The innermost statement of a function around a line, and the block that it stands in."""
    found, inside = None, False
    block: list[ast.stmt] | None = tree.body
    while block:
        statement = next((s for s in block if _holds([s], line)), None)
        if statement is None:
            break
        found = (block, statement) if inside else None
        inside |= isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
        block = next((inner for inner in _blocks(statement) if _holds(inner, line)), None)
    return found


def _holds(block: list[ast.stmt], line: int) -> bool:
    return _first(block[0]) <= line <= (block[-1].end_lineno or 0)


def _first(statement: ast.stmt) -> int:
    """The first line of a statement, decorators included."""
    decorators = getattr(statement, "decorator_list", ())
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements in a statement."""
    for inner in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(inner, name, None)
            if isinstance(block, list) and block:
                yield block


class Notes:
    """The plugin of the run with beacons: writes how long each test took, and which ones fail.

    `kept`: by test file, or test, where its notes go once they are whole.
    """

    def __init__(self, kept: Mapping[str, Path]) -> None:
        self.kept, self.part = kept, ""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Times a test, and the processes that it waited for."""
        self.enter(item.nodeid if item.nodeid in self.kept else item.nodeid.partition("::")[0])
        start = sum(os.times()[:4])
        yield
        beacon.note("seconds", item.nodeid, f"{sum(os.times()[:4]) - start:.3f}")

    def enter(self, part: str) -> None:
        """Goes to the notes of another file."""
        if part != self.part:
            self.leave()
            self.part, path = part, self.kept[part]
            path.with_suffix(".part").unlink(missing_ok=True)
            if path.exists():  # its tests do not stand together
                path.rename(path.with_suffix(".part"))
            os.environ[beacon.NOTES] = str(path.with_suffix(".part"))

    def leave(self) -> None:
        """These notes are whole."""
        if self.part:
            path, self.part = self.kept[self.part], ""
            path.with_suffix(".part").rename(path)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Files of long tests only have empty notes."""
        self.leave()
        for path in self.kept.values():
            if exitstatus in RAN:
                path.touch()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Its setup begins."""
        forget()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        """The test itself begins."""
        forget()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails without any change says nothing of a mutant."""
        if report.failed:
            beacon.note("failed", report.nodeid)


def forget() -> None:
    """What beacons call, as the marked modules have imported it, notes all keys anew."""
    if MODULE in sys.modules:
        sys.modules[MODULE].seen.clear()


def reach(tree: Tree, tests: Iterable[str], sample: Sequence[Mutant]) -> dict[str, Reach]:
    """By key of a mutant the tests among these that reach it: all, for one met on import."""
    by_file: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for mutant in sample:
        by_file[mutant.file][mutant.line].append(mutant.key)
    marked = {f: with_beacons((ROOT / f).read_text(), lines) for f, lines in by_file.items()}
    reached: dict[str, set[str]] = {m.key: set() for m in sample}
    seconds: dict[str, float] = {}
    for notes in _notes(tree, tests, marked):
        seconds |= {test: float(took) for key, test, took in notes if key == "seconds"}
        for key, test, _ in notes:
            if key == "failed":
                print(f"  fails without any change: {test}", flush=True)
                seconds.pop(test, None)
            elif key in reached:
                reached[key].add(test)
    on_import = {m.key for m in sample if m.key not in marked[m.file]}
    return {
        m.key: of_notes({*seconds} if m.key in on_import else reached[m.key], seconds, m.file)
        for m in sample
    }


def of_notes(noted: Set[str], seconds: Mapping[str, float], file: str) -> Reach:
    """The tests among these, all of a file that is named as a whole: those in a folder of the
    mutant's name first, then the quickest, and no more than `MOST_SECONDS` of them.
    """
    folders = set(Path(file).parent.parts) - {"src", "luminal"}
    tests = [test for test in seconds if test in noted or test.partition("::")[0] in noted]
    tests.sort(key=lambda test: (folders.isdisjoint(test.split("/")), seconds[test]))
    total, chosen = 0.0, []
    for test in tests:
        if not chosen or total + seconds[test] <= MOST_SECONDS:
            total += seconds[test]
            chosen.append(test)
    return Reach(tuple(chosen), total)


def _notes(
    tree: Tree, tests: Iterable[str], marked: Mapping[str, str]
) -> list[list[tuple[str, ...]]]:
    """What the beacons noted in a run of these tests, file by file; kept until a source changes, or
    the test file, or a module beside the tests.
    """
    shared = hashlib.sha256()
    for file in marked:
        shared.update((ROOT / file).read_bytes() + marked[file].encode())
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not path.name.startswith("test_") and path.parent != Path(__file__).parent:
            shared.update(path.read_bytes())
    kept = {}
    for part in (part for name in tests for part in _parts(name)):
        digest = shared.copy()
        digest.update(part.encode() + (ROOT / part.partition("::")[0]).read_bytes())
        kept[part] = WORK / "reach" / f"{digest.hexdigest()[:16]}.tsv"
    missing = {part: path for part, path in kept.items() if not path.exists()}
    if missing:
        (WORK / "reach").mkdir(parents=True, exist_ok=True)
        log = tree.folder / "log.txt"
        with tree.holding(marked):
            outcome = run(tree, [*missing], None, log, lambda: [Notes(missing)], False)
        if outcome.code not in RAN:
            raise SystemExit(f"{log.read_text()}\nthe tests do not run without any change")
        print(f"  {len(missing)} files of tests: {outcome.seconds:.1f} s", flush=True)
    return [_rows(path) for path in kept.values()]


def _rows(path: Path) -> list[tuple[str, ...]]:
    """Lines of notes as three fields each."""
    with path.open(newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(key, test, *rest, "")[:3] for key, test, *rest in rows]


def _parts(name: str) -> list[str]:
    """The test files of a folder; a file, or one test, as it is."""
    if not (ROOT / name).is_dir():
        return [name]
    return [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / name).rglob("test_*.py"))]

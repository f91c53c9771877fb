"""Which tests reach a mutant: the only ones that can notice it, and so the first to be run.

One run of the tests as they are, over modules with a beacon before each statement of the sample:
a beacon notes the test that is running. A sample of 400 in a package of 60,000 is then examined in
minutes, where all tests of a folder a mutant would take a day. What runs in the setup of a test may
belong to a fixture that others share, so it stands for all tests of the file; what runs while a
module is imported is reached by all tests.
"""

from __future__ import annotations

import ast
import builtins
import csv
import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutants.mutate import Mutant
from tests.mutants.run import ROOT, WORK, Tree, run

BEACON = "_reached_by_the_test"


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
        call = f"getattr(__import__('builtins'), {BEACON!r}, len)({keys!r})"
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
    """The plugin of the run with beacons: writes who reached what, and how long each test took."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        self.test, self.phase = "", "setup"
        self.seen: set[str] = set()
        setattr(builtins, BEACON, self.reached)

    def reached(self, keys: Sequence[str]) -> None:
        """What a beacon calls."""
        for key in keys:
            if key not in self.seen:
                self.seen.add(key)
                test = self.test if self.phase == "call" else self.test.partition("::")[0]
                self._write(key, test)

    def _write(self, *fields: str) -> None:
        os.write(self.file, ("\t".join(fields) + "\n").encode())

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Times a test."""
        self.test = item.nodeid
        start = time.process_time()
        yield
        self._write("seconds", item.nodeid, f"{time.process_time() - start:.3f}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Its setup begins."""
        self._enters("setup")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        """The test itself begins."""
        self._enters("call")

    def _enters(self, phase: str) -> None:
        self.phase = phase
        self.seen.clear()


def reach(tree: Tree, tests: Iterable[str], sample: Sequence[Mutant]) -> dict[str, Reach]:
    """By key of a mutant the tests among these that reach it: all, for one met on import."""
    by_file: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for mutant in sample:
        by_file[mutant.file][mutant.line].append(mutant.key)
    marked = {f: with_beacons((ROOT / f).read_text(), lines) for f, lines in by_file.items()}
    reached: dict[str, list[str]] = {m.key: [] for m in sample}
    seconds: dict[str, float] = {}
    for part in tests:
        for key, *fields in _notes(tree, part, marked):
            if key == "seconds":
                seconds[fields[0]] = float(fields[1])
            elif key in reached:
                reached[key].append(fields[0])
    on_import = {m.key for m in sample if m.key not in marked[m.file]}
    every = tuple(tests)
    return {
        key: Reach(every, sum(seconds.values())) if key in on_import else of_notes(found, seconds)
        for key, found in reached.items()
    }


def of_notes(found: Sequence[str], seconds: dict[str, float]) -> Reach:
    """The quickest first; tests of a file that is there as a whole are not named twice."""
    files = {name for name in found if "::" not in name}
    single = {name for name in found if "::" in name and name.partition("::")[0] not in files}
    cost: dict[str, float] = defaultdict(float)
    for test, took in seconds.items():
        cost[test] += took
        cost[test.partition("::")[0]] += took
    ordered = sorted(single | files, key=lambda name: cost[name])
    return Reach(tuple(ordered), sum(cost[name] for name in ordered))


def _notes(tree: Tree, part: str, marked: dict[str, str]) -> list[list[str]]:
    """What the beacons noted in a run of these tests; kept until a source or a test changes."""
    digest = hashlib.sha256(part.encode())
    for file in (*marked, *_files_of(part)):
        digest.update((ROOT / file).read_bytes() + marked.get(file, "").encode())
    kept = WORK / "reach" / f"{digest.hexdigest()[:16]}.tsv"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh, log = kept.with_suffix(".part"), tree.folder / "log.txt"
        with tree.holding(marked):
            outcome = run(tree, [part], None, log, lambda: [Notes(fresh)])
        if outcome.code != 0:
            raise SystemExit(f"{log.read_text()}\n{part}: the tests fail without any change")
        print(f"  {part}: {outcome.seconds:.1f} s of tests", flush=True)
        fresh.rename(kept)
    with kept.open(newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _files_of(part: str) -> list[Path]:
    path = ROOT / part.partition("::")[0]
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [each.relative_to(ROOT) for each in found]

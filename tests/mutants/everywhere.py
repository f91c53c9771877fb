"""`make mutants ARGS=--all`: a sample of the mutants of the whole package.

Each runs against the short tests that reach it, whichever folder they stand in: what is asked is
whether who changes a line, and runs `make test`, sees the fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date
from functools import cache

from tests.mutants.mutate import Mutant
from tests.mutants.run import ROOT
from tests.mutants.subjects import Subject

COUNT = 400
PARTS = 10  # of which a day has one
PACKAGE = "src/luminal"


@cache
def everywhere() -> Subject:
    """All files of the package, and all folders of tests."""
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / PACKAGE).rglob("*.py"))
    tests = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob("*/test_*.py")}
    folders = tuple(f"tests/{name}" for name in sorted(tests))
    return Subject("all", tuple(files), folders, COUNT)


def by_folder(mutants: Iterable[Mutant], alive: Iterable[Mutant]) -> str:
    """Of each folder of the package, how many of its mutants survive."""
    survive = Counter(folder_of(mutant.file) for mutant in alive)
    run = Counter(folder_of(mutant.file) for mutant in mutants)
    return ", ".join(f"{folder} {survive[folder]} of {run[folder]}" for folder in sorted(run))


def folder_of(file: str) -> str:
    """The folder of the package that a file lies in; "package" for what lies in none."""
    first, _, rest = file.removeprefix(f"{PACKAGE}/").partition("/")
    return first if rest else "package"


def todays_part() -> int:
    """1 to PARTS in turn, a day each."""
    return date.today().toordinal() % PARTS + 1

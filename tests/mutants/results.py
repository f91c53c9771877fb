"""Outcomes of mutants: kept between runs, summed up in a table, survivors explained."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutate import Mutant
from tests.mutants.run import ROOT, WORK, Outcome
from tests.mutants.subjects import Subject

HERE = Path(__file__).parent
TABLE, SURVIVORS = HERE / "table.txt", HERE / "survivors.txt"


class Row(NamedTuple):
    """One mutant's outcome: the exit code of its tests, their CPU seconds, the test that failed.

    `state` stands for the sources and tests that it was found with.
    """

    key: str
    code: int
    seconds: float
    state: str
    name: str
    test: str


class Survivor(NamedTuple):
    """A mutant that may survive, and why."""

    key: str
    subject: str
    name: str
    reason: str


class Kept:
    """The outcomes of a subject, in a file that grows by a line a mutant.

    One that survived is run again when sources or tests have changed.
    """

    def __init__(self, subject: Subject) -> None:
        self.path = WORK / f"{subject.name}.tsv"
        self.state = _state(subject)
        self.outcomes: dict[str, Row] = {}
        if self.path.exists():
            with self.path.open(newline="") as file:
                for key, code, seconds, *rest in csv.reader(file, delimiter="\t"):
                    self.outcomes[key] = Row(key, int(code), float(seconds), *rest)
        for row in [*self.outcomes.values()]:
            if row.code == 0 and row.state != self.state:
                del self.outcomes[row.key]

    def add(self, mutant: Mutant, outcome: Outcome, log: Path) -> None:
        """Keeps an outcome."""
        seconds = round(outcome.seconds, 2)
        row = Row(mutant.key, outcome.code, seconds, self.state, mutant.name, _failed(log))
        self.outcomes[row.key] = row
        with self.path.open("a", newline="") as file:
            csv.writer(file, delimiter="\t").writerow(row)

    def forget(self, keys: Iterable[str]) -> None:
        """Drops outcomes."""
        for key in keys:
            self.outcomes.pop(key, None)
        with self.path.open("w", newline="") as file:
            csv.writer(file, delimiter="\t").writerows(self.outcomes.values())


def _state(subject: Subject) -> str:
    """A hash of a subject's modules and of the files of its tests."""
    digest = hashlib.sha256()
    for name in (*subject.files, *subject.tests):
        path = ROOT / name.partition("::")[0]
        for each in sorted(path.rglob("*.py")) if path.is_dir() else (path,):
            digest.update(each.read_bytes())
    return digest.hexdigest()[:12]


def _failed(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    return next((line[7:107] for line in lines if line.startswith(("FAILED ", "ERROR  "))), "")


def survivors() -> list[Survivor]:
    """The survivors with their reasons: blocks of three lines, `key subject`, name, reason."""
    blocks = SURVIVORS.read_text().split("\n\n")[1:] if SURVIVORS.exists() else []
    found = []
    for block in blocks:
        head, name, *reason = block.strip().splitlines()
        key, subject = head.split()
        found.append(Survivor(key, subject, name.strip(), " ".join(map(str.strip, reason))))
    return found


class Sum(NamedTuple):
    """A subject's row of the table."""

    subject: str
    mutants: int
    run: int
    killed: int
    explained: int
    unexplained: int


def write_table(sums: Iterable[Sum]) -> None:
    """Brings the table up to date; rows of subjects that were not run stay."""
    rows = {row.subject: row for row in table()} | {row.subject: row for row in sums}
    lines = ["{:<12}{:>9}{:>6}{:>8}{:>11}{:>13}".format(*Sum._fields)]
    lines += ["{:<12}{:>9}{:>6}{:>8}{:>11}{:>13}".format(*row) for row in rows.values()]
    TABLE.write_text("\n".join(lines) + "\n")


def table() -> list[Sum]:
    """The rows of the table."""
    lines = TABLE.read_text().splitlines()[1:] if TABLE.exists() else []
    return [Sum(name, *map(int, numbers)) for name, *numbers in map(str.split, lines)]

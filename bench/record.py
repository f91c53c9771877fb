"""The record of a run of `python -m bench`: a file of JSON, written anew after every row.

A run that was ended goes on with `--resume`: what the file holds is not measured again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.block import EFFORT
from bench.load import Load
from bench.machine import ROOT, commit, machine, versions
from bench.row import Row, Skipped
from luminal.base.errors import InputError, LoadError

FORMAT = 1
FOLDER = ROOT / "build/bench"
NEEDED: Mapping[str, type | tuple[type, ...]] = {
    "format": int, "made": str, "machine": dict, "versions": dict, "source": dict, "threads": int,
    "effort": dict, "subjects": list, "finished": list, "rows": list,
}  # fmt: skip
OF_ROW: Mapping[str, type | tuple[type, ...]] = {
    "subject": str, "name": str, "load": dict, "made": str, "measured": (int, float),
    "target": (int, float), "unit": str, "spread": list, "detail": str, "passed": bool,
    "doubts": list, "blocks": int, "order": list, "sides": dict, "rates": list,
}  # fmt: skip
OF_SKIPPED = ("subject", "name", "load", "made", "reason")
SAME = ("machine", "versions", "source", "threads", "effort")
"""What has to be the same where a run goes on: rows of one record are comparable."""


@dataclass(slots=True)
class Record:
    """What was measured so far, and the file that holds it."""

    path: Path
    facts: dict[str, Any]

    @staticmethod
    def begun(path: Path | None, subjects: Sequence[str], threads: int) -> Record:
        """A record without rows. InputError where a file of that name is there already."""
        facts = _facts(subjects, threads)
        path = path or FOLDER / f"{facts['made'].replace(':', '')}.json"
        if path.exists():
            raise InputError(
                f"bench: {path} is there already; give --resume {path} to go on with it"
            )
        record = Record(path, facts)
        record.write()
        return record

    @staticmethod
    def resumed(path: Path, threads: int) -> Record:
        """The record in a file. InputError where the machine or the code have changed since."""
        record = Record(path, read(path))
        current = _facts((), threads)
        for key in SAME:
            if record.facts[key] != current[key]:
                difference = _difference(record.facts[key], current[key])
                raise InputError(
                    f"bench: --resume {path}: its {key} is another: {difference}; "
                    "begin a new record"
                )
        return record

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows, as JSON has them."""
        rows: list[dict[str, Any]] = self.facts["rows"]
        return rows

    @property
    def left(self) -> list[str]:
        """The subjects that are not finished."""
        return [name for name in self.facts["subjects"] if name not in self.facts["finished"]]

    def kept(self, subject: str) -> dict[str, Row]:
        """The rows of a subject that were measured, by name; skipped ones are tried again."""
        mine = (row for row in self.rows if row["subject"] == subject and "measured" in row)
        return {row["name"]: Row.of_record(row) for row in mine}

    def add(self, subject: str, row: Row | Skipped, load: Load) -> None:
        """Takes in a row, in the place of one that had its name, and writes the file."""
        self.facts["rows"] = [
            old for old in self.rows if (old["subject"], old["name"]) != (subject, row.name)
        ]
        said = {"subject": subject, **row.record(), "load": load.record(), "made": _now()}
        self.rows.append(said)
        self.write()

    def finish(self, subject: str) -> None:
        """All rows of the subject are there."""
        self.facts["finished"].append(subject)
        self.write()

    def write(self) -> None:
        """Replaces the file in one step: whenever a run ends, a whole record is there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.facts, indent=1) + "\n", "utf-8")
        os.replace(part, self.path)


def read(path: Path) -> dict[str, Any]:
    """A record's facts. LoadError that names what is missing or of another kind."""
    try:
        facts = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"bench: {path} is no record: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else type(facts).__name__
        raise LoadError(f"bench: {path} is no record of format {FORMAT}, but of {found!r}")
    _check(path, "", facts, NEEDED)
    for number, row in enumerate(facts["rows"]):
        place = f"rows[{number}]."
        if not isinstance(row, dict):
            raise LoadError(f"bench: {path}: {place[:-1]} is a {type(row).__name__}, not an object")
        needed = dict.fromkeys(OF_SKIPPED, object) if "reason" in row else OF_ROW
        _check(path, place, row, needed)
    return facts


def _check(path: Path, place: str, said: Mapping[str, Any], needed: Mapping[str, Any]) -> None:
    for key, kind in needed.items():
        if key not in said:
            raise LoadError(f"bench: {path}: {place}{key} is missing")
        if not isinstance(said[key], kind):
            found = type(said[key]).__name__
            raise LoadError(f"bench: {path}: {place}{key} may not be of type {found}")


def _facts(subjects: Sequence[str], threads: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "made": _now(),
        "machine": machine(),
        "versions": versions(),
        "source": commit(),
        "threads": threads,
        "effort": asdict(EFFORT),
        "subjects": list(subjects),
        "finished": [],
        "rows": [],
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _difference(old: Any, new: Any) -> str:
    """The first thing that differs, where both are records of things."""
    if isinstance(old, dict) and isinstance(new, dict):
        key = next(key for key in {**old, **new} if old.get(key) != new.get(key))
        return f"{key} was {old.get(key)!r} and is {new.get(key)!r}"
    return f"{old!r} and {new!r}"

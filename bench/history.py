"""Records side by side: machines, their rows, and what each row was in every record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Facts = Mapping[str, Any]


@dataclass(slots=True)
class Series:
    """A row through the records of one machine, the oldest first; `newest` is of the last of them
    that has it.
    """

    subject: str
    name: str
    points: list[tuple[Facts, Facts]] = field(default_factory=list)
    """The record and the row."""

    @property
    def newest(self) -> Facts:
        """The row of the newest record."""
        return self.points[-1][1]

    @property
    def measured(self) -> list[tuple[Facts, Facts]]:
        """The points that are no skipped rows and of the newest one's unit."""
        unit = self.newest.get("unit")
        return [(record, row) for record, row in self.points if row.get("unit", "") == unit]


@dataclass(slots=True)
class Place:
    """A machine with so many threads, and its records, the oldest first."""

    name: str
    records: list[Facts]

    def series(self) -> list[Series]:
        """The rows of all records; those that the newest record has stand in its order."""
        found: dict[tuple[str, str], Series] = {}
        for record in reversed(self.records):
            for row in record["rows"]:
                key = row["subject"], row["name"]
                series = found.setdefault(key, Series(*key))
                series.points.insert(0, (record, row))
        return list(found.values())


def places(records: Iterable[Facts]) -> list[Place]:
    """The machines of the records, that of the newest record first."""
    found: dict[str, list[Facts]] = {}
    for record in sorted(records, key=lambda each: str(each["made"])):
        found.setdefault(_name(record), []).append(record)
    named = [Place(name, held) for name, held in found.items()]
    return sorted(named, key=lambda place: str(place.records[-1]["made"]), reverse=True)


def changes(records: Sequence[Facts]) -> list[tuple[str, list[str], list[bool]]]:
    """Of each package the version in every record, and whether it is another than before."""
    packages = dict.fromkeys(name for record in records for name in record["versions"])
    found = []
    for package in packages:
        versions = [str(record["versions"].get(package, "not told")) for record in records]
        found.append((package, versions, [False, *(old != new for old, new in pairwise(versions))]))
    return found


def _name(record: Facts) -> str:
    machine = record["machine"]
    threads = f"{record['threads']} thread{'s' * (record['threads'] != 1)}"
    return f"{machine['cpu']} ({machine['llvm_cpu']}), {machine['cores']} cores, {threads}"

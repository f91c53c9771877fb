"""A database in another place: all of it as one file, and the rows of such a file taken in.

Times of one chip say nothing of another's, so a row is taken only where its chip is here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

from luminal.base.errors import InputError
from luminal.base.records import dataclass
from luminal.search.database import FAILURES, FORMAT, Database

COPIED = {"samples": 7, "prices": 2, "programs": 6}
"""The tables and their columns; what searches did is not among them: it is of their machine."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The samples and finished searches that were new, and how many samples of each chip that is
    not here were left.
    """

    samples: int
    programs: int
    left: Mapping[str, int]


def export(database: Database, path: Path) -> None:
    """Writes all of a database into a new file. Raises InputError where there is one, or no room
    for it.
    """
    if path.exists():
        raise InputError(f"cache export: {path} exists; name a file that does not, or remove it")
    try:
        source = f"{database.path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(source, uri=True)) as connection:
            connection.execute("vacuum into ?", (str(path),))
    except FAILURES as error:
        raise InputError(
            f"cache export: {path} cannot be written from {database.path}: {error}; name a file in "
            "a folder of your own"
        ) from None


def take(database: Database, path: Path, here: Collection[str]) -> Taken:
    """Adds the rows of a file that are of a chip `here`; what is known stays. Raises InputError for
    a file that is no database of this format, and where all its samples are of other chips.
    """
    rows = _rows(path)
    chips = [str(row[1]) for row in rows["samples"]]
    left = {chip: chips.count(chip) for chip in sorted({*chips} - {*here})}
    if chips and not {*chips} & {*here}:
        listed = ", ".join(f"{count} of '{chip}'" for chip, count in left.items())
        present = ", ".join(f"'{chip}'" for chip in here) or "no chip that can be used"
        raise InputError(
            f"cache import: {path} holds timings of other chips ({listed}), and times of one chip "
            f"say nothing of another's; this machine has {present}. Take it to a machine with "
            "that chip, and search here anew"
        )
    samples = [row for row in rows["samples"] if str(row[1]) in here]
    before = database.chips(), database.counts()
    taken = {row[0] for row in samples}
    database.take("prices", [row for row in rows["prices"] if row[0] in taken])
    database.take("samples", samples)
    # A decision's key names its machine: one of another chip is found by no search here.
    database.take("programs", rows["programs"])
    new = sum(database.chips().values()) - sum(before[0].values())
    return Taken(new, database.counts()[1] - before[1][1], left)


def _rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """The rows of a file, by table. Raises InputError where it is no database of this format."""
    if not path.is_file():
        raise InputError(f"cache import: there is no file {path}; name one that export wrote")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            (number,) = file.execute("pragma user_version").fetchone()
            if number != FORMAT:
                raise InputError(
                    f"cache import: {path} has format {number}, and this Luminal reads {FORMAT}; "
                    "export it again with the same version"
                )
            rows = {table: file.execute(f"select * from {table}").fetchall() for table in COPIED}
    except FAILURES as error:
        raise InputError(
            f"cache import: {path} is no database of searches: {error}; name a file that "
            "`luminal cache export` wrote"
        ) from None
    for table, columns in COPIED.items():
        rows[table] = [row for row in rows[table] if len(row) == columns]
    return rows

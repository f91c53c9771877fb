"""What searches did: the one of a program, with its candidates, and those of a database."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from luminal.base import installation
from luminal.base.errors import InputError
from luminal.runtime.report import Change, SearchSummary, search_facts, search_of
from luminal.search.database import FAILURES, Searched
from luminal.search.differences import differences
from luminal.search.genome import Genome
from luminal.search.space import Space


def search(summary: SearchSummary, space: Space | None = None) -> dict[str, Any]:
    """The document's part of a search: its summary, the candidates, and how the program differs
    from that of `fast`. By the `space` this is told of searches that are known by their genome
    alone.
    """
    genome = genome_of(summary)
    changes = summary.changes
    if not changes and space is not None:
        changes = tuple(Change(text) for _, text in differences(space, genome))
    facts = search_facts(summary)
    del facts["trials"], facts["genome"], facts["changes"]
    return {
        **facts,
        "genes": [
            {"candidate": number, **trial._asdict(), "gain": trial.gain}
            for number, trial in enumerate(summary.trials)
        ],
        "difference": [change._asdict() for change in changes],
    }


def genome_of(summary: SearchSummary | None) -> Genome:
    """The choices of the program that a search chose; those of `fast` without one."""
    if summary is None or not summary.genome:
        return Genome()
    return Genome.parse(summary.genome)


def document_of(path: str | Path) -> dict[str, Any]:
    """The document of a database: what its searches did, the latest first. Raises InputError for a
    file that is none.
    """
    searches = [*_told(_read(path))]
    return {
        "title": f"{path}: {len(searches)} searches",
        "made": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "luminal": installation.VERSION,
        "searches": searches,
    }


def _told(rows: list[Searched]) -> Iterator[dict[str, Any]]:
    """Rows of the list, each with the part that a document of its program has."""
    for row in rows:
        try:
            summary = search_of(row.facts)
        except (KeyError, TypeError, AttributeError):  # of another version
            continue
        names = ("title", "of", "machine", "dims")
        yield {
            **{name: row.facts.get(name) for name in names},
            "ended": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.ended)),
            "gain": _gain(summary),
            "search": search(summary),
        }


def _gain(summary: SearchSummary) -> float | None:
    """How many times as fast the chosen program is as that of `fast`; None where it is that one."""
    if genome_of(summary) == Genome() or not summary.best_seconds:
        return None
    return summary.fast_seconds / summary.best_seconds


def _read(path: str | Path) -> list[Searched]:
    """The searches of a file, which is left as it is."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"viz: {path}: no such file; `luminal cache info` names the database")
    query = "select key, ended, facts from searches order by ended desc"
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            rows = opened.execute(query).fetchall()
    except FAILURES as error:
        raise InputError(
            f"viz: {path}: no database of searches: {error}; takes the file that `luminal cache "
            "info` names, or one that `luminal cache export` wrote"
        ) from None
    return [searched for searched in map(Searched.of_row, rows) if searched is not None]

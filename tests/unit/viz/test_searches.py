"""The viewer's list of the searches that a database has noted."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from luminal.base.errors import InputError
from luminal.runtime.report import Change, SearchSummary, Trial, search_facts
from luminal.search import moved
from luminal.search.database import FILE, Database, Searched
from luminal.search.genome import Genome
from luminal.viz.searches import document_of

NOTHING = SearchSummary(
    mode="TimeBudget(8)",
    seed=7,
    candidates=24,
    kernels_built=30,
    rejected=(),
    history=(),
    fast_seconds=7e-4,
    best_seconds=5e-4,
    decision="nothing beat the fast program",
    genome=Genome().to_json(),
)
FOUND = replace(
    NOTHING,
    genome=Genome(apart=("t",)).to_json(),
    trials=(Trial(0.5, "structure", "Sum apart", 5e-4, 7e-4, "kept"),),
    changes=(Change("Sum has a kernel of its own", 1.4),),
)


def database(folder: Path) -> Database:
    made = Database(folder / FILE)
    told = {"title": "cnn", "of": "conv (cnn.py:3)", "machine": "cpu: znver3", "dims": {"s": 4}}
    ended = time.mktime((2026, 11, 30, 15, 4, 5, 0, 0, -1))
    made.add_search(Searched("a", ended - 1, told | search_facts(NOTHING)))
    made.add_search(Searched("b", ended, told | search_facts(FOUND)))
    made.add_search(Searched("c", ended - 2, {"of": "another version"}))
    return made


def test_searches_are_told_the_latest_first(tmp_path: Path) -> None:
    database(tmp_path)
    found, nothing = document_of(tmp_path / FILE)["searches"]
    assert (found["title"], found["ended"]) == ("cnn", "2026-11-30 15:04:05")
    assert found["machine"] == "cpu: znver3"
    assert found["gain"] == pytest.approx(7e-4 / 5e-4)
    assert found["search"]["difference"] == [{"text": FOUND.changes[0].text, "without": 1.4}]
    assert found["search"]["genes"][0]["gain"] == pytest.approx(1.4)
    assert nothing["gain"] is None
    assert nothing["search"]["decision"] == NOTHING.decision
    assert nothing["search"]["difference"] == []


def test_an_exported_database_has_them_too(tmp_path: Path) -> None:
    moved.export(database(tmp_path), tmp_path / "moved")
    assert document_of(tmp_path / "moved")["searches"] == document_of(tmp_path / FILE)["searches"]


def test_what_is_no_database_of_searches_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be looked at" * 9)
    for name, said in (("nothing", "no such file"), ("text", "no database of searches: file is")):
        with pytest.raises(InputError, match=rf"viz: .*{name}: {re.escape(said)}"):
            document_of(tmp_path / name)

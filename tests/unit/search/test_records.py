"""The search's records and its database."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.base import config
from luminal.search import database as database_module
from luminal.search.database import FILE, Database, Decision, Searched
from luminal.search.genome import Genome
from luminal.search.options import CompilationMode, TimeBudget, mode_of
from luminal.search.runner import Pairs

GENOME = Genome(
    spellings=(("c1", "s2"),),
    residences=(("t1", "stored"),),
    apart=("t3",),
    tuned=(("k1", '[["rows", 8]]'),),
    joined=(("t4", "t3"),),
    unrolled=True,
    dispatch="one",
)


def test_genome_text_is_read_back() -> None:
    assert Genome.parse(GENOME.to_json()) == GENOME
    assert GENOME.knobs == {"k1": (("rows", 8),)}
    with pytest.raises(ValueError, match="not a genome"):
        Genome.parse('{"spellings": []}')
    for knobs in ("no JSON", "5", '[["rows"]]', '[["rows", 1.5]]', '[["rows", [1]]]', "null"):
        damaged = replace(GENOME, tuned=(("k1", knobs),)).to_json()
        with pytest.raises(ValueError, match="not a genome"):
            Genome.parse(damaged)
    with pytest.raises(ValueError, match="dispatch is 1, not a word"):
        Genome.parse(replace(GENOME, dispatch=1).to_json())  # type: ignore[arg-type]


def test_choices_are_made_and_taken_back() -> None:
    made = Genome()
    for kind, key, value in (
        ("spellings", "c1", "s2"),
        ("residences", "t1", "stored"),
        ("apart", "t3", "yes"),
        ("joined", "t4", "t3"),
        ("unrolled", "", "yes"),
        ("dispatch", "", "one"),
    ):
        made = made.with_choice(kind, key, value)
        assert made.with_choice(kind, key, None) != made
    assert made.with_tuned({"k1": (("rows", 8),)}) == GENOME
    assert GENOME.with_tuned({"k1": ()}).tuned == ()


def test_modes() -> None:
    assert mode_of("fast") is CompilationMode.FAST
    assert mode_of("optimal").is_search
    assert mode_of("1.5s") == TimeBudget(1.5) == CompilationMode.TimeBudget(1.5)
    assert TimeBudget(4).shared_by(2) == TimeBudget(2)
    with pytest.raises(lm.CompileError, match=r"mode 'quick': takes 'fast', 'optimal' or"):
        mode_of("quick")
    with pytest.raises(lm.CompileError, match="TimeBudget: takes seconds > 0, got 0"):
        TimeBudget(0)
    with pytest.raises(lm.CompileError, match="mode 'slow': takes 'fast', 'optimal' or"):
        CompilationMode("slow")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_candidates": 0}, "max_candidates takes an integer >= 1, got 0"),
        ({"stop_below_us": float("nan")}, "stop_below_us takes a number >= 0, got nan"),
        ({"seed": None}, "seed takes an integer >= 0, got None"),
        ({"workers": True}, "workers takes an integer from 1 to 1024, got True"),
        ({"run_seconds": float("inf")}, "run_seconds takes a number from 0.01 to 3600, got inf"),
        ({"progress": "yes"}, "progress takes True, False or None, got 'yes'"),
        ({"dims": ["s"]}, r"dims takes a dict, as \{\"s\": 128\}, got \['s'\]"),
        ({"dims": {"s": 1.5}}, "dims: s takes an integer >= 0, got 1.5"),
    ],
)
def test_options_name_what_they_take(options: dict[str, Any], message: str) -> None:
    with pytest.raises(lm.CompileError, match=f"SearchOptions: {message}"):
        lm.SearchOptions(**options)


def test_equal_options_have_equal_texts() -> None:
    given: dict[str, Any] = {"seed": np.int64(3), "dims": {lm.Graph().dim("s", 1, 8): np.int32(4)}}
    options = lm.SearchOptions(stop_below_us=5, **given)
    assert str(options) == str(lm.SearchOptions(seed=3, stop_below_us=5.0, dims={"s": 4}))


def test_a_challenger_needs_to_win_beyond_the_spreads() -> None:
    slow = [1.0, 2.0, 1.5, 1.0, 3.0]  # the machine's speed drifts
    assert Pairs([0.9 * each for each in slow], slow).wins(0.02)
    assert not Pairs([0.9 * each for each in slow], slow).wins(0.2)
    assert not Pairs(slow, slow).wins(0.02)
    assert not Pairs([0.9, 0.4, 1.2, 1.1, 0.5], [1.0] * 5).wins(0.02)  # by luck
    far_apart = [10.0, 45.0, 16.0, 9.0, 80.0]  # as on a loaded machine
    assert Pairs([1.0] * 5, far_apart).wins(0.02)
    assert not Pairs([1.0] * 4, [0.5, 1.1, 1.2, 3.0]).wins(0.02)
    assert not Pairs([1.0, 1.0, 1.0, 1.0], [1.5, 1.5, 1.5, 0.99]).wins(0.02)  # only when disturbed


# --- the database


def test_prices_and_decisions_are_kept(tmp_path: Path) -> None:
    first = Database(tmp_path / FILE)
    first.add_prices({"a": 1.0, "b": 2.0})
    first.add_prices({"b": 3.0})  # what is known stays
    decision = Decision("{}", 2.0, 1.0, '[["one", 1.0]]')
    chosen = first.decide("program", decision)
    assert chosen == decision
    second = Database(tmp_path / FILE)
    assert second.prices() == {"a": 1.0, "b": 2.0}
    assert second.decide("program", Decision("[]", 5.0, 5.0)) == chosen  # the first one holds
    assert second.decision("other") is None
    assert second.clear() == (2, 1)
    assert first.decision("program") is None


def test_what_searches_did_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest first, of all or of a key, and no more than some."""
    monkeypatch.setattr(database_module, "MOST_SEARCHES", 3)
    database = Database(tmp_path / FILE)
    told = [Searched("a" if k % 2 else "b", float(k), {"k": k, "é": [None]}) for k in range(5)]
    for searched in told:
        database.add_search(searched)
    assert database.searches() == Database(tmp_path / FILE).searches() == told[:1:-1]
    assert database.searches("a") == [told[3]]
    assert database.searches("c") == []
    raw(tmp_path / FILE, "update searches set facts = 'no JSON' where ended = 3.0")
    raw(tmp_path / FILE, "update searches set ended = 9e999 where ended = 2.0")
    assert Database(tmp_path / FILE).searches() == [told[4]]
    database.clear()
    assert database.searches() == []


def test_a_file_without_that_table_is_given_it(tmp_path: Path) -> None:
    Database(tmp_path / FILE).add_prices({"a": 1.0})
    raw(tmp_path / FILE, "drop table searches")
    database = Database(tmp_path / FILE)
    assert database.searches() == []
    assert database.prices() == {"a": 1.0}


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.warns(RuntimeWarning, match=r"renamed to search\.damaged, and a new one begins"):
        database = Database(tmp_path / FILE)
    database.add_prices({"a": 1.0})
    assert Database(tmp_path / FILE).prices() == {"a": 1.0}
    assert (tmp_path / "search.damaged").read_bytes().startswith(b"no database")


def test_a_file_damaged_inside_is_set_aside(tmp_path: Path) -> None:
    database = Database(tmp_path / FILE)
    database.add_prices({str(k) * 100: 1.0 for k in range(1000)})
    database.close()
    with (tmp_path / FILE).open("r+b") as file:
        file.seek(20_000)
        file.write(b"\xff" * 100_000)
    database = Database(tmp_path / FILE)  # its first page is sound
    with pytest.warns(RuntimeWarning, match=r"malformed; it was renamed to search\.damaged"):
        assert database.prices() == {}
    database.add_prices({"a": 1.0})
    assert Database(tmp_path / FILE).prices() == {"a": 1.0}


def test_a_damaged_schema_with_bytes_that_are_no_text_is_set_aside(tmp_path: Path) -> None:
    Database(tmp_path / FILE).close()
    data = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(data.replace(b"tablepricesprices", b"tablepr\x81cesprices"))
    with pytest.warns(RuntimeWarning, match=r"renamed to search\.damaged, and a new one begins"):
        database = Database(tmp_path / FILE)  # SQLite's message quotes the name
    database.add_prices({"a": 1.0})
    assert Database(tmp_path / FILE).prices() == {"a": 1.0}


def test_a_directory_that_cannot_be_written_costs_no_compile(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="kept in memory only"):
        database = Database(tmp_path / "file" / FILE)
    database.add_prices({"a": 1.0})
    assert database.prices() == {"a": 1.0}


def test_a_full_disk_costs_no_measurement(tmp_path: Path) -> None:
    database = Database(tmp_path / FILE)
    database.add_prices({"a": 1.0})
    database._connection.execute("pragma max_page_count = 1")  # as if nothing more fitted
    with pytest.warns(RuntimeWarning, match="disk is full; measurements of this process are kept"):
        database.add_prices({str(k) * 1000: 1.0 for k in range(100)})
    assert len(database.prices()) == 100
    assert database.decide("p", Decision("{}", 1.0, 1.0)).genome == "{}"


def test_a_locked_file_is_waited_for(tmp_path: Path) -> None:
    database = Database(tmp_path / FILE)
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("begin")
    other.execute("insert into prices values ('b', 2.0)")
    other.execute("commit")
    other.close()
    database.add_prices({"a": 1.0})
    assert database.prices() == {"a": 1.0, "b": 2.0}


def raw(path: Path, *statements: str) -> None:
    """What another program does to the file."""
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


PRICE_ROWS = ("'many'", "'1.0'", "x'00ff'", "-1.0", "9e999", "-9e999", "1e300")


def test_a_price_that_is_none_is_passed_over(tmp_path: Path) -> None:
    Database(tmp_path / FILE).add_prices({"sound": 1.0})
    rows = [f"insert into prices values ('p{k}', {v})" for k, v in enumerate(PRICE_ROWS)]
    odd = ["x'ff'", "cast(x'ff61' as text)", "7"]
    raw(tmp_path / FILE, *rows, *(f"insert into prices values ({key}, 1.0)" for key in odd))
    found = Database(tmp_path / FILE).prices()
    assert found["sound"] == 1.0
    assert all(type(k) is str and type(v) is float and 0 <= v < 1e6 for k, v in found.items())
    assert len(found) <= 1 + 1 + 2  # '1.0' becomes a number, and two keys become texts


@pytest.mark.parametrize(
    "change",
    [
        "genome = '[]'",
        "genome = cast(x'ff' as text)",
        "genome = x'00'",
        "fast_seconds = 'slow'",
        "best_seconds = 3.0",
        "best_seconds = 9e999",
        "hash = ''",
        "key = 'another'",
    ],
)
def test_a_decision_that_was_changed_is_forgotten(tmp_path: Path, change: str) -> None:
    """Another key's row is not this one's, as sound as it may be."""
    chosen = Decision(Genome().to_json(), 2.0, 1.0)
    Database(tmp_path / FILE).decide("program", chosen)
    raw(tmp_path / FILE, f"update programs set {change}")
    database = Database(tmp_path / FILE)
    for key in ("program", "another"):
        assert database.decision(key) is None
    assert database.counts() == (0, 0)
    assert database.decide("program", chosen) == chosen
    assert Database(tmp_path / FILE).decision("program") == chosen


@pytest.mark.parametrize(
    "statements",
    [
        ("drop table prices",),
        ("drop table programs",),
        ("drop table programs", "create table programs (key text, other integer)"),
        ("alter table prices rename column seconds to minutes",),
    ],
)
def test_other_tables_are_set_aside(tmp_path: Path, statements: tuple[str, ...]) -> None:
    Database(tmp_path / FILE).add_prices({"a": 1.0})
    raw(tmp_path / FILE, *statements)
    database = Database(tmp_path / FILE)
    with pytest.warns(RuntimeWarning, match=r"renamed to search\.damaged, and a new one begins"):
        found = database.prices(), database.decision("program")
    assert found[1] is None
    database.add_prices({"b": 1.0})
    assert Database(tmp_path / FILE).prices() == {"b": 1.0}


def test_tables_of_another_version_begin_anew(tmp_path: Path) -> None:
    """Without a word: every release may change them."""
    raw(
        tmp_path / FILE,
        "create table prices (key text primary key, seconds real not null)",
        "create table programs (key text primary key, genome text not null, "
        "fast_seconds real not null, best_seconds real not null)",
        "insert into programs values ('program', '{}', 1.0, 1.0)",
    )
    (tmp_path / FILE).chmod(0o600)
    database = Database(tmp_path / FILE)
    assert database.counts() == (0, 0)
    assert database.decide("program", Decision("{}", 2.0, 1.0)) == Decision("{}", 2.0, 1.0)


def as_link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.chmod(0o666), r"others may write .*\(mode 666\); chmod it to 600"),
        (lambda path: os.chown(path, 12345, -1), "is owned by user 12345, not by you"),
        (as_link, "is a link, or no file"),
        (as_folder, "is a link, or no file"),
        (lambda path: path.parent.chmod(0o777), r"open to other users \(mode 777\)"),
        (lambda path: os.chown(path.parent, 12345, -1), "owned by user 12345, not by you"),
        (lambda path: as_link(path.parent), "is not a directory, or a link to one"),
    ],
)
def test_an_unsafe_place_is_not_used(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    if "12345" in reason and os.getuid() != 0:
        pytest.skip("only root gives files away")
    root = tmp_path / "root"
    Database(root / FILE).add_prices({"a": 1.0})
    assert (root / FILE).stat().st_mode & 0o077 == root.stat().st_mode & 0o077 == 0
    spoil(root / FILE)
    with pytest.warns(RuntimeWarning, match=f"{reason}.*kept in memory only") as seen:
        database = Database(root / FILE)
    assert len(seen) == 1
    assert database.prices() == {}
    database.add_prices({"b": 1.0})
    assert database.prices() == {"b": 1.0}


def test_a_child_opens_the_file_anew(tmp_path: Path) -> None:
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        inherited = database_module.default()
        inherited.add_prices({"parent": 1.0})
        child = os.fork()
        if child == 0:
            status = 1
            try:
                own = database_module.default()
                own.add_prices({"child": 1.0})
                status = 0 if own is not inherited and len(own.prices()) == 2 else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert inherited.prices() == {"parent": 1.0, "child": 1.0}


def test_processes_share_the_file(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from luminal.search.database import Database; "
        "d = Database(Path(sys.argv[1])); "
        "[d.add_prices({f'{sys.argv[2]}{k}': 1.0}) for k in range(50)]"
    )
    path = str(tmp_path / FILE)
    running = [subprocess.Popen([sys.executable, "-c", code, path, name]) for name in "ab"]
    assert [process.wait(60) for process in running] == [0, 0]
    assert len(Database(Path(path)).prices()) == 100


def test_children_see_the_flags() -> None:
    with config.override(LUMINAL_THREADS=1):
        assert config.child_environment()["LUMINAL_THREADS"] == "1"

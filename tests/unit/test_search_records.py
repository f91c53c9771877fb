"""The search's records and its database."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal import config
from luminal.search.database import FILE, Database, Decision
from luminal.search.genome import Genome
from luminal.search.options import CompilationMode, TimeBudget, mode_of
from luminal.search.runner import Pairs

GENOME = Genome(
    spellings=(("c1", "s2"),),
    residences=(("t1", "stored"),),
    apart=("t3",),
    tuned=(("k1", '[["rows", 8]]'),),
    unrolled=True,
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


def test_choices_are_made_and_taken_back() -> None:
    made = Genome()
    for kind, key, value in (
        ("spellings", "c1", "s2"),
        ("residences", "t1", "stored"),
        ("apart", "t3", "yes"),
        ("unrolled", "", "yes"),
    ):
        made = made.with_choice(kind, key, value)
        assert made.with_choice(kind, key, None) != made
    assert made.with_tuned({"k1": (("rows", 8),)}) == GENOME
    assert GENOME.with_tuned({"k1": ()}).tuned == ()


def test_modes() -> None:
    assert mode_of("fast") is CompilationMode.FAST
    assert mode_of("optimal").searches
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
    assert not Pairs([1.0, 1.0, 1.0, 1.0], [1.5, 1.5, 1.5, 0.99]).wins(0.02)  # only when disturbed


# --- the database


def test_prices_and_decisions_are_kept(tmp_path: Path) -> None:
    first = Database(tmp_path / FILE)
    first.add_prices({"a": 1.0, "b": 2.0})
    first.add_prices({"b": 3.0})  # what is known stays
    chosen = first.decide("program", Decision("{}", 2.0, 1.0))
    assert chosen == Decision("{}", 2.0, 1.0)
    second = Database(tmp_path / FILE)
    assert second.prices() == {"a": 1.0, "b": 2.0}
    assert second.decide("program", Decision("[]", 5.0, 5.0)) == chosen  # the first one holds
    assert second.decision("other") is None
    assert second.clear() == (2, 1)
    assert first.decision("program") is None


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

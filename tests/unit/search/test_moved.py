"""Samples of chips in the database, and databases that move between machines."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from luminal.base.errors import InputError
from luminal.cli.main import main
from luminal.search import database as search_database
from luminal.search import moved
from luminal.search.chip import chip_of, chips_here
from luminal.search.database import FILE, MOST_SAMPLES, Database, Decision, Sample
from tests.machines import usual, vectors

HERE, THERE = "cpu: this one", "cuda: that one"
SAMPLE = Sample("k", 2.0, 1.0, {"flops": 3.0, "bytes": 4.0})


def filled(folder: Path, *chips: str) -> Database:
    """A database with a price, a sample of it for each chip and a decision."""
    database = Database(folder / FILE)
    for chip in chips:
        database.add_prices({f"price {chip}": 2.0})
        database.add_samples(chip, "code", {f"price {chip}": SAMPLE})
    database.decide("program", Decision("{}", 2.0, 1.0))
    return database


def raw(path: Path, *statements: str) -> Sequence[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = [connection.execute(statement).fetchall() for statement in statements]
    return rows[-1]


def test_samples_are_those_of_a_chip_and_of_this_code(tmp_path: Path) -> None:
    database = filled(tmp_path, HERE, THERE)
    database.add_samples(HERE, "older code", {"older": replace(SAMPLE, seconds=9.0)})
    database.add_samples(HERE, "code", {"price cpu: this one": replace(SAMPLE, seconds=8.0)})
    assert Database(tmp_path / FILE).samples(HERE, "code") == [SAMPLE]  # what is known stays
    assert database.samples("cpu: no such", "code") == []
    assert database.chips() == {HERE: 2, THERE: 1}
    assert database.clear() == (2, 1)
    assert database.chips() == {}


def test_the_latest_samples_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_SAMPLES >= 1000
    monkeypatch.setattr(search_database, "MOST_SAMPLES", 3)
    database = Database(tmp_path / FILE)
    rows = {str(9 - k): replace(SAMPLE, seconds=float(k)) for k in range(1, 6)}
    database.add_samples(HERE, "code", rows)
    assert [sample.seconds for sample in database.samples(HERE, "code")] == [3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    "change",
    [
        "features = '[]'",
        "features = 'no JSON'",
        'features = \'{"a": "word"}\'',
        "features = '{\"a\": NaN}'",
        "seconds = -1.0",
        "seconds = 'long'",
        "predicted = 9e999",
        "predicted = 0.0",
    ],
)
def test_a_sample_that_is_none_is_passed_over(tmp_path: Path, change: str) -> None:
    filled(tmp_path, HERE).close()
    raw(tmp_path / FILE, f"update samples set {change}")
    assert Database(tmp_path / FILE).samples(HERE, "code") == []


def test_a_file_from_before_keeps_its_rows(tmp_path: Path) -> None:
    """Samples have a table of their own, which a file of older searches is given."""
    filled(tmp_path, HERE).close()
    raw(tmp_path / FILE, "drop table samples")
    database = Database(tmp_path / FILE)
    assert database.prices() == {"price cpu: this one": 2.0}
    assert database.decision("program") == Decision("{}", 2.0, 1.0)
    database.add_samples(HERE, "code", {"a": SAMPLE})
    assert Database(tmp_path / FILE).samples(HERE, "code") == [SAMPLE]


def test_tables_of_another_format_are_kept_beside(tmp_path: Path) -> None:
    filled(tmp_path, HERE).close()
    raw(tmp_path / FILE, "pragma user_version = 2")
    (tmp_path / FILE).chmod(0o600)
    assert Database(tmp_path / FILE).counts() == (0, 0)
    assert raw(tmp_path / FILE, "select seconds from prices_of_format_2") == [(2.0,)]
    assert raw(tmp_path / FILE, "select genome from programs_of_format_2") == [("{}",)]


def test_a_database_moves_to_a_machine_of_its_chip(tmp_path: Path) -> None:
    filled(tmp_path / "one", HERE, THERE)
    moved.export(Database(tmp_path / "one" / FILE), tmp_path / "moved")
    other = Database(tmp_path / "other" / FILE)
    other.add_samples(HERE, "code", {"own": SAMPLE})
    taken = moved.take(other, tmp_path / "moved", [HERE, "opencl: a third"])
    assert taken == moved.Taken(samples=1, programs=1, left={THERE: 1})
    assert other.samples(HERE, "code") == [SAMPLE, SAMPLE]
    assert other.samples(THERE, "code") == []
    assert other.prices() == {"price cpu: this one": 2.0}
    assert other.decision("program") == Decision("{}", 2.0, 1.0)
    again = moved.take(other, tmp_path / "moved", [HERE])
    assert (again.samples, again.programs) == (0, 0)


def test_rows_of_another_chip_are_refused(tmp_path: Path) -> None:
    filled(tmp_path, THERE)
    moved.export(Database(tmp_path / FILE), tmp_path / "moved")
    other = Database(tmp_path / "other" / FILE)
    message = (
        r"cache import: .*moved holds timings of other chips \(1 of 'cuda: that one'\), and times "
        r"of one chip say nothing of another's; this machine has 'cpu: this one'. Take it to"
    )
    with pytest.raises(InputError, match=message):
        moved.take(other, tmp_path / "moved", [HERE])
    assert other.counts() == (0, 0)
    assert other.chips() == {}


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    database = filled(tmp_path, HERE)
    with pytest.raises(InputError, match=r"export: .* exists; name a file that does not"):
        moved.export(database, tmp_path / FILE)
    with pytest.raises(InputError, match=r"export: .* cannot be written"):
        moved.export(database, tmp_path / "no folder" / "moved")
    with pytest.raises(InputError, match=r"import: there is no file .*nothing; name one"):
        moved.take(database, tmp_path / "nothing", [HERE])
    (tmp_path / "text").write_text("no database, but long enough to be looked at" * 9)
    with pytest.raises(InputError, match=r"import: .*text is no database of searches"):
        moved.take(database, tmp_path / "text", [HERE])
    raw(tmp_path / "empty", "pragma user_version = 9")
    with pytest.raises(InputError, match=r"empty has format 9, and this Luminal reads 3"):
        moved.take(database, tmp_path / "empty", [HERE])


def test_the_command_moves_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def luminal(*arguments: str) -> int | str | None:
        monkeypatch.setattr("sys.argv", ["luminal", "cache", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        return caught.value.code

    monkeypatch.setattr("luminal.search.chip.chips_here", lambda: (HERE,))
    filled(tmp_path / "one", HERE, THERE).close()
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path / "one"))
    assert luminal("export", str(tmp_path / "moved")) == 0
    assert f"wrote 1 timings of {THERE}" in capsys.readouterr().out
    monkeypatch.setenv("LUMINAL_CACHE_DIR", str(tmp_path / "other"))
    assert luminal("import", str(tmp_path / "moved")) == 0
    printed = capsys.readouterr().out
    assert "took 1 timings and 1 searches" in printed
    assert f"left 1 timings of another chip: {THERE}" in printed
    assert luminal("info") == 0
    assert f"timings    1 of {HERE}" in capsys.readouterr().out


def test_chips_are_named_by_what_tells_them_apart() -> None:
    assert chip_of(usual()) == chip_of(usual())
    assert chip_of(usual()) != chip_of(replace(usual(), target=vectors(256, 16).target))
    assert any(chip.startswith("cpu: ") for chip in chips_here())
    assert not any(chip.startswith("reference") for chip in chips_here())

"""What searches measured and decided, kept on disk and shared by processes: one SQLite file.

`prices`: seconds of kernels, by everything they depend on. `samples`: what was counted of these
kernels, by the same keys, and the chip. `programs`: the genome that a finished search chose, by
graph, machine and options; the first one stored stays, so that all processes run the same program.
`searches`: what the latest searches did, finished or not, by the same keys. `moved.py` takes the
rows of another file. Nothing here is needed: what goes wrong costs
measurements, never a compile, and a row that is not what this module wrote is passed over.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from luminal.base import config, forks
from luminal.base.records import dataclass
from luminal.runtime.private_folder import opened

FILE = "search.sqlite3"
FORMAT = 3  # of the first two tables; those of another one are kept under other names
BUSY_SECONDS = 5.0  # how long to wait for another process's write
LEAST_SECONDS, MOST_SECONDS = 1e-12, 1e6  # of a kernel's run: beyond them is no clock's
MOST_SAMPLES = 4000  # that are read: the latest ones of a chip
SAMPLES = (
    "create table if not exists samples (key text primary key, chip text not null, "
    "code text not null, kernel text not null, seconds real not null, predicted real not null, "
    "features text not null)"
)
SEARCHES = (
    "create table if not exists searches (number integer primary key, key text not null, "
    "ended real not null, facts text not null)"
)
"""Versions of Luminal that do not know these two tables leave them alone."""
MOST_SEARCHES = 200  # that are kept, the latest ones: each is some tens of kilobytes
TABLES = (
    "create table prices (key text primary key, seconds real not null)",
    "create table programs (key text primary key, genome text not null, "
    "fast_seconds real not null, best_seconds real not null, dispatches text not null, "
    "hash text not null)",
    f"pragma user_version = {FORMAT}",
)

Failure = sqlite3.Error | UnicodeDecodeError
FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""Of SQLite; the second where the words of an error quote bytes of a damaged file."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Decision:
    """What a search chose, and the seconds a run took for `fast` and for it. `dispatches` are those
    of a SearchSummary, as JSON.
    """

    genome: str
    fast_seconds: float
    best_seconds: float
    dispatches: str = "[]"

    def hash(self, key: str) -> str:
        """Over the decision as this key's: a row that is damaged, or another key's, differs."""
        seconds = f"{self.fast_seconds!r}\n{self.best_seconds!r}\n{self.dispatches}"
        text = f"{key}\n{self.genome}\n{seconds}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search did: when it `ended` (seconds since 1970), and its `facts`, which are JSON."""

    key: str
    ended: float
    facts: Mapping[str, Any]

    @classmethod
    def of_row(cls, row: Sequence[object]) -> Searched | None:
        """The search of a row's columns; None where they hold none."""
        key, ended, text = row
        try:
            facts = json.loads(str(text))
            seconds = float(str(ended))
        except (ValueError, RecursionError):
            return None
        is_one = isinstance(facts, dict) and math.isfinite(seconds)
        return cls(str(key), seconds, facts) if is_one else None


@dataclass(frozen=True, slots=True)
class Sample:
    """What a kernel took in a run, what it was predicted to take, and what was counted of it.

    `kernel` names what it computes: its schedules have the same. `predicted` is by the counts
    alone, which are the `features`.
    """

    kernel: str
    seconds: float
    predicted: float
    features: Mapping[str, float]

    @classmethod
    def of_row(cls, row: Sequence[object]) -> Sample | None:
        """The Sample of a row's last four columns; None where they hold none."""
        kernel, seconds, predicted, text = row
        try:
            features = {str(k): float(v) for k, v in json.loads(str(text)).items()}
            sample = cls(str(kernel), float(str(seconds)), float(str(predicted)), features)
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None
        return sample if sample.is_possible else None

    @property
    def is_possible(self) -> bool:
        """Is there a clock that gives such seconds, and is all that was counted finite?"""
        times = (self.seconds, self.predicted)
        of_clocks = all(LEAST_SECONDS < seconds < MOST_SECONDS for seconds in times)
        return of_clocks and all(map(math.isfinite, self.features.values()))


class Database:
    """The file, or if it cannot be used a warning and memory in its place.

    A file that is no database is set aside under another name, and a new one begins.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = forks.rlock()
        self._connection = self._open()

    def prices(self) -> dict[str, float]:
        """A snapshot of all prices."""
        query = "select key, seconds from prices where typeof(seconds) = 'real' and seconds >= 0"
        nothing: list[tuple[Any, float]] = []
        rows = self._asked(lambda connection: connection.execute(query).fetchall(), nothing)
        return {key: price for key, price in rows if type(key) is str and price < MOST_SECONDS}

    def add_prices(self, prices: Mapping[str, float]) -> None:
        """Adds prices; those that are known stay."""
        self._write("insert or ignore into prices values (?, ?)", list(prices.items()))

    def samples(self, chip: str, code: str) -> list[Sample]:
        """The latest samples of a chip that this code made, the oldest first."""
        # By rowid, which grows: keys say nothing of time.
        query = (
            "select kernel, seconds, predicted, features from samples "
            "where chip = ? and code = ? order by rowid desc limit ?"
        )
        nothing: list[tuple[object, ...]] = []
        bound = (chip, code, MOST_SAMPLES)
        rows = self._asked(lambda connection: connection.execute(query, bound).fetchall(), nothing)
        return [sample for sample in map(Sample.of_row, reversed(rows)) if sample is not None]

    def add_samples(self, chip: str, code: str, samples: Mapping[str, Sample]) -> None:
        """Adds samples by the keys of their prices; those that are known stay."""
        rows: list[tuple[object, ...]] = []
        for key, sample in samples.items():
            counts = {name: float(f"{value:.6g}") for name, value in sample.features.items()}
            numbers = sample.seconds, sample.predicted, json.dumps(counts)
            rows.append((key, chip, code, sample.kernel, *numbers))
        self._write("insert or ignore into samples values (?, ?, ?, ?, ?, ?, ?)", rows)

    def take(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Adds whole rows of another file's table; what is known stays."""
        if rows:
            holes = ", ".join("?" * len(rows[0]))
            self._write(f"insert or ignore into {table} values ({holes})", [*rows])

    def chips(self) -> dict[str, int]:
        """The number of samples of each chip that there are any of."""
        query = "select chip, count(*) from samples group by chip order by chip"
        nothing: list[tuple[Any, int]] = []
        rows = self._asked(lambda connection: connection.execute(query).fetchall(), nothing)
        return {str(chip): count for chip, count in rows}

    def decision(self, key: str) -> Decision | None:
        """What a finished search chose, or None."""
        # A row is believed only if its hash holds: the file is shared by processes and versions,
        # and a wrong genome would be a slow program for good.
        query = (
            "select genome, fast_seconds, best_seconds, dispatches, hash from programs "
            "where key = ?"
        )
        row = self._asked(lambda connection: connection.execute(query, (key,)).fetchone(), None)
        if row is None:
            return None
        stored = Decision(*row[:4])
        if [*map(type, row[:4])] == [str, float, float, str] and stored.hash(key) == row[4]:
            return stored
        self.forget(key)
        return None

    def decide(self, key: str, decision: Decision) -> Decision:
        """Stores a choice, unless there is one; the choice that holds."""
        earlier = self.decision(key)  # forgets one that is damaged
        if earlier is not None:
            return earlier
        seconds = float(decision.fast_seconds), float(decision.best_seconds)
        decision = Decision(decision.genome, *seconds, decision.dispatches)
        row = (key, decision.genome, *seconds, decision.dispatches, decision.hash(key))
        self._write("insert or ignore into programs values (?, ?, ?, ?, ?, ?)", [row])
        return self.decision(key) or decision

    def add_search(self, searched: Searched) -> None:
        """Notes what a search did; the oldest ones go where there are many."""
        row = searched.key, searched.ended, json.dumps(searched.facts)
        self._write("insert into searches (key, ended, facts) values (?, ?, ?)", [row])
        latest = "select number from searches order by ended desc limit ?"
        self._write(f"delete from searches where number not in ({latest})", [(MOST_SEARCHES,)])

    def searches(self, key: str | None = None) -> list[Searched]:
        """What searches did, the latest first; those of a key alone."""
        query = "select key, ended, facts from searches where ? in (key, '') order by ended desc"
        nothing: list[tuple[object, ...]] = []
        bound = (key or "",)
        rows = self._asked(lambda connection: connection.execute(query, bound).fetchall(), nothing)
        return [searched for searched in map(Searched.of_row, rows) if searched is not None]

    def forget(self, key: str) -> None:
        """Removes the choice stored under a key."""
        self._write("delete from programs where key = ?", [(key,)])

    def counts(self) -> tuple[int, int]:
        """The numbers of prices and of programs that are stored."""
        query = "select (select count(*) from prices), (select count(*) from programs)"
        numbers = self._asked(lambda connection: connection.execute(query).fetchone(), (0, 0))
        prices, programs = numbers
        return prices, programs

    def clear(self) -> tuple[int, int]:
        """Forgets everything; how many prices and programs there were."""
        counts = self.counts()
        self._write("delete from prices", [()])
        self._write("delete from samples", [()])
        self._write("delete from programs", [()])
        self._write("delete from searches", [()])
        return counts

    def close(self) -> None:
        """Closes the database's file."""
        self._connection.close()

    def _asked(self, ask: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """The answer of a query, or `otherwise` where the file is damaged: then memory follows."""
        with self._lock:
            try:
                return ask(self._connection)
            except FAILURES as error:
                self._fall_back(error)
                return otherwise

    def _write(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        with self._lock:
            try:
                with self._connection:
                    self._connection.executemany(statement, rows)
            except FAILURES as error:
                self._fall_back(error)
                with self._connection:
                    self._connection.executemany(statement, rows)

    def _open(self) -> sqlite3.Connection:
        try:
            with opened(self.path.parent, create=True) as folder:
                folder.settle(self.path.name)
            return _connect(str(self.path))
        except (OSError, *FAILURES) as error:
            return self._instead_of_it(error)

    def _fall_back(self, error: Failure) -> None:
        self._connection.close()
        self._connection = self._instead_of_it(error)

    def _instead_of_it(self, error: OSError | Failure) -> sqlite3.Connection:
        """The connection used from now on: to a new file where the old one is damaged; to memory
        where it is locked, full or unreadable.
        """
        try:
            if _is_damage(error):
                return self._start_anew(error)
        except (OSError, *FAILURES) as another:
            error = another
        self._warn(
            f"{error}; measurements of this process are kept in memory only. "
            "Set LUMINAL_CACHE_DIR to a directory of your own"
        )
        return _connect(":memory:")

    def _start_anew(self, error: OSError | Failure) -> sqlite3.Connection:
        aside = self.path.with_suffix(".damaged")
        self.path.replace(aside)
        for ending in ("-wal", "-shm"):  # what SQLite keeps beside a file that is in use
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
        self._warn(f"{error}; it was renamed to {aside.name}, and a new one begins")
        with opened(self.path.parent) as folder:
            folder.settle(self.path.name)
        return _connect(str(self.path))

    def _warn(self, text: str) -> None:
        warnings.warn(f"search database {self.path}: {text}", RuntimeWarning, stacklevel=4)


def _is_damage(error: OSError | Failure) -> bool:
    """Is the error one of a damaged file, or of tables that are not these?"""
    other_tables = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return type(error) in (sqlite3.DatabaseError, UnicodeDecodeError) or other_tables


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        # With a log beside the file readers wait for no writer, and without a sync after each row a
        # crash of the machine costs some measurements at most.
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        if not _has_tables(connection):
            # Two processes may find the file new at once; the second waits here, looks again and
            # finds tables.
            connection.execute("begin immediate")
            with connection:
                for statement in () if _is_of_format(connection) else _tables(connection):
                    connection.execute(statement)
                connection.execute(SAMPLES)
                connection.execute(SEARCHES)
    except FAILURES:
        connection.close()
        raise
    return connection


def _has_tables(connection: sqlite3.Connection) -> bool:
    query = (
        "select count(*) from sqlite_master where type = 'table' "
        "and name in ('samples', 'searches')"
    )
    return _is_of_format(connection) and connection.execute(query).fetchone() == (2,)


def _is_of_format(connection: sqlite3.Connection) -> bool:
    is_ours: bool = connection.execute("pragma user_version").fetchone() == (FORMAT,)
    return is_ours


def _tables(connection: sqlite3.Connection) -> list[str]:
    """The statements that make the tables. Those of another format are kept beside them."""
    (number,) = connection.execute("pragma user_version").fetchone()
    statements = []
    for name in ("prices", "programs"):
        query = "select count(*) from sqlite_master where type = 'table' and name = ?"
        if connection.execute(query, (name,)).fetchone() != (0,):
            kept = f"{name}_of_format_{number}"
            statements += [f"drop table if exists {kept}", f"alter table {name} rename to {kept}"]
    return [*statements, *TABLES]


_databases: dict[Path, Database] = {}
_inherited: list[Database] = []
_databases_lock = forks.lock()


def default() -> Database:
    """The database in LUMINAL_CACHE_DIR."""
    path = config.get("LUMINAL_CACHE_DIR") / FILE
    with _databases_lock:
        if path not in _databases:
            _databases[path] = Database(path)
        return _databases[path]


def _after_fork() -> None:
    """A connection neither works in a child nor may be closed there."""
    _inherited.extend(_databases.values())
    _databases.clear()


forks.on_fork(_after_fork)

"""What searches measured and decided, kept on disk and shared by processes: one SQLite file.

`prices`: seconds of kernels, by everything they depend on. `programs`: the genome that a finished
search chose, by graph, machine and options; the first one stored stays, so that all processes run
the same program. Nothing here is needed: what goes wrong costs measurements, never a compile.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from luminal import config

FILE = "search.sqlite3"
BUSY_SECONDS = 5.0  # how long to wait for another process's write
TABLES = """
pragma journal_mode = wal;
pragma synchronous = normal;
create table if not exists prices (key text primary key, seconds real not null);
create table if not exists programs (
    key text primary key, genome text not null, fast_seconds real not null,
    best_seconds real not null
);
"""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a search chose, and the seconds a run took for `fast` and for it."""

    genome: str
    fast_seconds: float
    best_seconds: float


class Database:
    """The file, or if it cannot be used a warning and memory in its place.

    A file that is no database is set aside under another name, and a new one begins.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection = self._open()

    def prices(self) -> dict[str, float]:
        """A snapshot of all prices."""
        try:
            with self._lock:
                return dict(self._connection.execute("select key, seconds from prices"))
        except sqlite3.Error as error:
            self._fall_back(error)
            return {}

    def add_prices(self, prices: Mapping[str, float]) -> None:
        """Adds prices; those that are known stay."""
        self._write("insert or ignore into prices values (?, ?)", list(prices.items()))

    def decision(self, key: str) -> Decision | None:
        """What a finished search chose, or None."""
        query = "select genome, fast_seconds, best_seconds from programs where key = ?"
        try:
            with self._lock:
                row = self._connection.execute(query, (key,)).fetchone()
        except sqlite3.Error as error:
            self._fall_back(error)
            return None
        return None if row is None else Decision(*row)

    def decide(self, key: str, decision: Decision) -> Decision:
        """Stores a choice, unless there is one; the choice that holds."""
        row = (key, decision.genome, decision.fast_seconds, decision.best_seconds)
        self._write("insert or ignore into programs values (?, ?, ?, ?)", [row])
        return self.decision(key) or decision

    def forget(self, key: str) -> None:
        """Removes a choice."""
        self._write("delete from programs where key = ?", [(key,)])

    def counts(self) -> tuple[int, int]:
        """How many prices and how many programs are stored."""
        query = "select (select count(*) from prices), (select count(*) from programs)"
        try:
            with self._lock:
                prices, programs = self._connection.execute(query).fetchone()
        except sqlite3.Error as error:
            self._fall_back(error)
            return 0, 0
        return prices, programs

    def clear(self) -> tuple[int, int]:
        """Forgets everything; how many prices and programs there were."""
        counts = self.counts()
        self._write("delete from prices", [()])
        self._write("delete from programs", [()])
        return counts

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def _write(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        try:
            with self._lock, self._connection:
                self._connection.executemany(statement, rows)
        except sqlite3.Error as error:
            self._fall_back(error)
            with self._lock, self._connection:
                self._connection.executemany(statement, rows)

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _connect(str(self.path))
        except (OSError, sqlite3.Error) as error:
            return self._instead_of_it(error)

    def _fall_back(self, error: sqlite3.Error) -> None:
        self._connection.close()
        self._connection = self._instead_of_it(error)

    def _instead_of_it(self, error: OSError | sqlite3.Error) -> sqlite3.Connection:
        """For a damaged file a new one; for one that is locked, full or unreadable, memory."""
        try:
            if type(error) is sqlite3.DatabaseError:
                return self._start_anew(error)
        except (OSError, sqlite3.Error) as another:
            error = another
        self._warn(
            f"{error}; measurements of this process are kept in memory only. "
            "Set LUMINAL_CACHE_DIR to a directory of your own"
        )
        return _connect(":memory:")

    def _start_anew(self, error: sqlite3.Error) -> sqlite3.Connection:
        aside = self.path.with_suffix(".damaged")
        self.path.replace(aside)
        for ending in ("-wal", "-shm"):  # what SQLite keeps beside a file that is in use
            Path(f"{self.path}{ending}").unlink(missing_ok=True)
        self._warn(f"{error}; it was renamed to {aside.name}, and a new one begins")
        return _connect(str(self.path))

    def _warn(self, text: str) -> None:
        warnings.warn(f"search database {self.path}: {text}", RuntimeWarning, stacklevel=4)


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, check_same_thread=False)
    try:
        connection.executescript(TABLES)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


_databases: dict[Path, Database] = {}
_databases_lock = threading.Lock()


def default() -> Database:
    """The database in LUMINAL_CACHE_DIR."""
    path = config.get("LUMINAL_CACHE_DIR") / FILE
    with _databases_lock:
        if path not in _databases:
            _databases[path] = Database(path)
        return _databases[path]


# A connection does not survive a fork.
os.register_at_fork(after_in_child=_databases.clear)

"""What searches measured and decided, kept on disk and shared by processes: one SQLite file.

`prices`: seconds of kernels, by everything they depend on. `programs`: the genome that a finished
search chose, by graph, machine and options; the first one stored stays, so that all processes run
the same program. Nothing here is needed: what goes wrong costs measurements, never a compile, and
a row that is not what this module wrote is passed over.
"""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from luminal.base import config, forks
from luminal.base.records import dataclass
from luminal.runtime.private_folder import opened

FILE = "search.sqlite3"
FORMAT = 3  # of the tables; a file of another one begins anew
BUSY_SECONDS = 5.0  # how long to wait for another process's write
MOST_SECONDS = 1e6  # of a kernel's run
TABLES = (
    "drop table if exists prices",
    "drop table if exists programs",
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
        self._write("delete from programs", [()])
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
                for statement in () if _has_tables(connection) else TABLES:
                    connection.execute(statement)
    except FAILURES:
        connection.close()
        raise
    return connection


def _has_tables(connection: sqlite3.Connection) -> bool:
    is_ours: bool = connection.execute("pragma user_version").fetchone() == (FORMAT,)
    return is_ours


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

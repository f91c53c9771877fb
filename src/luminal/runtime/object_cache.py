"""Compiled objects kept between processes.

One file an entry, `<first two digits of the key>/<key>.o`: a SHA-256 over key and payload, then
the payload. Files are written under another name and renamed into place, so a reader never sees
half an entry; one that is damaged, or another key's, is deleted and built again. Keys are hashes,
so one of the 256 folders tells how large the cache is: listing all of it takes seconds. Entries are
code that will run, so every folder from the cache's root down must be private (`private_folder`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from luminal.base import config, forks, tracing
from luminal.base.records import dataclass
from luminal.runtime.private_folder import Entry, Folder, opened

SUFFIX = ".o"
UNFINISHED = ".part"
FOLDERS = 256
HASH_BYTES = hashlib.sha256().digest_size
EVICT_TO = 0.9  # eviction goes below the bound, so that not every later write evicts
LOCK = "lock"  # a file in each folder: who makes an entry of the folder holds it
LOCK_SECONDS = 60.0  # far longer than most compiles; a process that is stopped may hold it
STALE_SECONDS = 3600.0  # an unfinished file older than this belongs to a process that died


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache holds; `directory` is None where it is kept in memory only."""

    directory: Path | None
    entries: int
    bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class _File:
    folder: str
    entry: Entry


def key(*parts: object) -> str:
    """The name of an entry: a hash over the texts of everything the object depends on."""
    digest = hashlib.sha256()
    for part in parts:
        text = str(part).encode()
        # With its length before each part, or the parts "ab" and "c" would be the key of "a" and
        # "bc".
        digest.update(b"%d:" % len(text) + text)
    return digest.hexdigest()


# Keys are texts of tile IR, not of LLVM IR: a kernel that is known is not even rendered, which
# saves 110 of 250 ms for a small Llama. What makes code of it (the renderer, LLVM's options, all
# that they import) is hashed into the key, so a changed renderer finds nothing old.
class ObjectCache:
    """Objects by key, on disk and at most `limit_bytes` of them; least recently used go first.

    `directory` and the folder it lies in are private to the user. Where they cannot be used, one
    warning says why and entries live in memory. Threads and processes may share a directory.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self._lock = forks.lock()
        self._memory: dict[str, bytes] = {}
        self._bytes: int | None = None  # files' total as this process knows it; None: not estimated
        self._usable = self._writable = True
        self._try_out()

    def get(self, key: str) -> bytes | None:
        """The object, or None where there is none or it is damaged."""
        if not self._writable and key in self._memory:
            return self._memory[key]
        if not self._usable:
            return None
        name = _folder_of(key)
        # An entry is code that will run. Its hash covers the key as well as the payload, so a file
        # copied over another entry is refused, and the folders are opened one by one so that none
        # can be swapped.
        if not os.access(f"{self.directory}/{name}/{key}{SUFFIX}", os.F_OK):
            return None  # whoever owns the folders: nothing there is trusted
        try:
            with self._folder(name) as folder:
                data = folder.read(key + SUFFIX)
                if data is None:
                    return None
                payload = data[HASH_BYTES:]
                if _hash(key, payload) == data[:HASH_BYTES]:
                    return payload
                folder.remove(key + SUFFIX)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._fall_back(error)
        return None

    def put(self, key: str, payload: bytes) -> None:
        """Keep an object, replacing the entry of the same key."""
        if self._writable:
            try:
                self._write(key, _hash(key, payload) + payload)
                return
            except OSError as error:
                self._fall_back(error)
        self._memory[key] = payload

    @contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Inside, an entry is made by one process and thread at a time: who comes later finds it
        when it gets in. Where the cache cannot be used, or a minute passes, nobody is kept out.
        """
        # A lock on disk asks nothing of who else makes the entry: ranks of a program whose caches
        # differ, and programs that know nothing of one another, are served alike.
        with ExitStack() as stack:
            if self._writable:
                with tracing.span("wait"), suppress(OSError):
                    # The folder's, not the key's: there is nothing to tidy up, and two entries of
                    # one folder are rarely made at one time.
                    folder = stack.enter_context(self._folder(_folder_of(key), create=True))
                    stack.enter_context(folder.held(LOCK, LOCK_SECONDS))
            yield

    def info(self) -> CacheInfo:
        """What the cache holds now: entries and bytes."""
        files = self._files() if self._usable else []
        if not self._usable:  # or no more
            sizes = [len(payload) for payload in self._memory.values()]
            return CacheInfo(None, len(sizes), sum(sizes), self.limit_bytes)
        total = sum(file.entry.size for file in files)
        return CacheInfo(self.directory, len(files), total, self.limit_bytes)

    def clear(self) -> int:
        """Delete every entry; how many there were."""
        files = self._files() if self._usable else []
        self._delete(files)
        count = len(files) + len(self._memory)
        self._memory.clear()
        self._bytes = None
        return count

    def _folder(self, *names: str, create: bool = False) -> AbstractContextManager[Folder]:
        return opened(self.directory.parent, self.directory.name, *names, create=create)

    def _try_out(self) -> None:
        try:
            with self._folder(create=True) as folder:
                if not folder.is_writable():
                    self._writable = False  # what is there serves all the same
                    self._warn("it is not writable; what is new is kept in memory only")
        except OSError as error:
            self._fall_back(error)

    def _fall_back(self, error: OSError) -> None:
        self._usable = self._writable = False
        self._warn(f"{error}; compiled code is kept in memory only")

    def _warn(self, what: str) -> None:
        warnings.warn(
            f"object cache {self.directory}: {what}. "
            "Set LUMINAL_CACHE_DIR to a directory of your own",
            RuntimeWarning,
            stacklevel=5,
        )

    def _write(self, key: str, data: bytes) -> None:
        name = _folder_of(key)
        with self._folder(name, create=True) as folder:
            draft = secrets.token_hex(8) + UNFINISHED
            try:
                folder.create(draft, data)
                folder.rename(draft, key + SUFFIX)
            except BaseException as error:
                folder.remove(draft)
                if isinstance(error, IsADirectoryError):
                    return  # whoever made one in the place of an entry may have something in it
                raise
            sizes = [] if self._bytes is not None else [f.size for f in folder.files(SUFFIX)]
        with self._lock:
            if self._bytes is None:
                self._bytes = FOLDERS * sum(sizes)
            else:
                self._bytes += len(data)
            if self._bytes > self.limit_bytes:
                self._bytes = self._evict()

    def _evict(self) -> int:
        """Above the bound the least recently used go, down to `EVICT_TO` of it; what is left."""
        old = time.time() - STALE_SECONDS
        self._delete(file for file in self._files(UNFINISHED) if file.entry.used < old)
        files = sorted(self._files(), key=lambda file: file.entry.used)
        total = sum(file.entry.size for file in files)
        if total <= self.limit_bytes:
            # The bound seemed to be crossed by an estimate from one folder; now that all are
            # listed, it may not be.
            return total
        gone = []
        for file in files:
            if total <= self.limit_bytes * EVICT_TO:
                break
            gone.append(file)
            total -= file.entry.size
        self._delete(gone)
        return total

    def _files(self, ending: str = SUFFIX) -> list[_File]:
        """The files with this ending in all folders; a folder that cannot be used has none."""
        files = []
        for name in self._folders():
            with suppress(OSError), self._folder(name) as folder:
                files += [_File(name, entry) for entry in folder.files(ending)]
        return files

    def _folders(self) -> list[str]:
        try:
            with self._folder() as folder:
                return sorted(folder.names())
        except FileNotFoundError:
            return []
        except OSError as error:
            self._fall_back(error)
            return []

    def _delete(self, files: Iterable[_File]) -> None:
        by_folder: dict[str, list[str]] = {}
        for file in files:
            by_folder.setdefault(file.folder, []).append(file.entry.name)
        for name, entries in by_folder.items():
            with suppress(OSError), self._folder(name) as folder:
                for entry in entries:
                    folder.remove(entry)


def _folder_of(key: str) -> str:
    return key[:2]


def _hash(key: str, payload: bytes) -> bytes:
    """The digest of a payload under its key: another key's payload is not this one's."""
    return hashlib.sha256(f"{len(key)}:{key}".encode() + payload).digest()


_caches: dict[tuple[Path, int], ObjectCache] = {}
_caches_lock = forks.lock()


def default() -> ObjectCache:
    """The cache of LUMINAL_CACHE_DIR, bounded by LUMINAL_CACHE_BYTES."""
    settings = config.get("LUMINAL_CACHE_DIR"), config.get("LUMINAL_CACHE_BYTES")
    with _caches_lock:
        if settings not in _caches:
            # A folder of its own below the user's: that one may well be readable to others.
            _caches[settings] = ObjectCache(settings[0] / "objects", settings[1])
        return _caches[settings]


def info() -> CacheInfo:
    """What the default cache holds: entries and bytes."""
    return default().info()


def clear() -> int:
    """Empty the default cache; how many entries went."""
    return default().clear()

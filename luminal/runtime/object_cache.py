"""Compiled objects kept between processes.

One file an entry, `<first two digits of the key>/<key>.o`: the SHA-256 of the payload, then the
payload. Files are written under another name and renamed into place, so a reader never sees half
an entry, and an entry that does not match its hash is deleted and built again. Keys are hashes, so
one of the 256 folders tells how large the cache is: listing all of it takes seconds. The directory
holds code that will run, so it must belong to the user and be closed to everybody else.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from luminal import config

SUFFIX = ".o"
UNFINISHED = ".part"
FOLDERS = 256
HASH_BYTES = hashlib.sha256().digest_size
EVICT_TO = 0.9  # eviction goes below the bound, so that not every later write evicts
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
    path: Path
    size: int
    used: float


def key(*parts: object) -> str:
    """The name of an entry: a hash over the texts of everything the object depends on."""
    digest = hashlib.sha256()
    for part in parts:
        text = str(part).encode()
        digest.update(b"%d:" % len(text) + text)
    return digest.hexdigest()


class ObjectCache:
    """Objects by key, on disk and at most `limit_bytes` of them; least recently used go first.

    Where the directory cannot be used, one warning says why and entries live in memory.
    Threads and processes may share a directory.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._memory: dict[str, bytes] = {}
        self._bytes: int | None = None  # files' total as this process knows it; None: not estimated
        self._usable = self._open()

    def get(self, key: str) -> bytes | None:
        """The object, or None where there is none or it is damaged."""
        if not self._usable:
            return self._memory.get(key)
        path = self._path(key)
        try:
            data = path.read_bytes()
            payload = data[HASH_BYTES:]
            if hashlib.sha256(payload).digest() != data[:HASH_BYTES]:
                path.unlink(missing_ok=True)
                return None
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._fall_back(str(error))
            return None
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Keep an object, replacing the entry of the same key."""
        if self._usable:
            try:
                self._write(self._path(key), hashlib.sha256(payload).digest() + payload)
                return
            except OSError as error:
                self._fall_back(str(error))
        self._memory[key] = payload

    def info(self) -> CacheInfo:
        """What is there now."""
        if not self._usable:
            sizes = [len(payload) for payload in self._memory.values()]
            return CacheInfo(None, len(sizes), sum(sizes), self.limit_bytes)
        files = _files(self.directory)
        return CacheInfo(
            self.directory, len(files), sum(file.size for file in files), self.limit_bytes
        )

    def clear(self) -> int:
        """Delete every entry; how many there were."""
        files = _files(self.directory) if self._usable else []
        for file in files:
            file.path.unlink(missing_ok=True)
        count = len(files) + len(self._memory)
        self._memory.clear()
        self._bytes = None
        return count

    def _open(self) -> bool:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.directory.lstat()
            if not stat.S_ISDIR(status.st_mode):
                return self._fall_back("not a directory")
            if status.st_uid != os.getuid():
                return self._fall_back(f"owned by user {status.st_uid}, not by you")
            if status.st_mode & 0o077:
                mode = stat.S_IMODE(status.st_mode)
                return self._fall_back(f"open to other users (mode {mode:o}); chmod it to 700")
            if not os.access(self.directory, os.W_OK | os.X_OK):
                return self._fall_back("not writable")
        except OSError as error:
            return self._fall_back(str(error))
        return True

    def _fall_back(self, reason: str) -> bool:
        self._usable = False
        warnings.warn(
            f"object cache {self.directory}: {reason}; compiled code is kept in memory only. "
            "Set LUMINAL_CACHE_DIR to a directory of your own",
            RuntimeWarning,
            stacklevel=4,
        )
        return False

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / (key + SUFFIX)

    def _write(self, path: Path, data: bytes) -> None:
        folder = path.parent
        folder.mkdir(mode=0o700, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=UNFINISHED, dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        with self._lock:
            if self._bytes is None:
                self._bytes = FOLDERS * sum(file.size for file in _files(folder))
            else:
                self._bytes += len(data)
            if self._bytes > self.limit_bytes:
                self._bytes = self._evict()

    def _evict(self) -> int:
        """Above the bound the least recently used go, down to `EVICT_TO` of it; what is left."""
        for part in self.directory.rglob("*" + UNFINISHED):
            try:
                if time.time() - part.stat().st_mtime > STALE_SECONDS:
                    part.unlink(missing_ok=True)
            except FileNotFoundError:
                continue
        files = sorted(_files(self.directory), key=lambda file: file.used)
        total = sum(file.size for file in files)
        if total <= self.limit_bytes:
            return total
        for file in files:
            if total <= self.limit_bytes * EVICT_TO:
                break
            file.path.unlink(missing_ok=True)
            total -= file.size
        return total


def _files(folder: Path) -> list[_File]:
    """The entries in a folder and below."""
    files = []
    for path in folder.rglob("*" + SUFFIX):
        try:
            status = path.stat()
        except FileNotFoundError:  # another process evicted it
            continue
        files.append(_File(path, status.st_size, status.st_mtime))
    return files


_caches: dict[tuple[Path, int], ObjectCache] = {}
_caches_lock = threading.Lock()


def default() -> ObjectCache:
    """The cache of LUMINAL_CACHE_DIR, bounded by LUMINAL_CACHE_BYTES."""
    # A folder of its own below the user's: that one may well be readable to others.
    directory = config.get("LUMINAL_CACHE_DIR") / "objects"
    limit = config.get("LUMINAL_CACHE_BYTES")
    with _caches_lock:
        if (directory, limit) not in _caches:
            _caches[directory, limit] = ObjectCache(directory, limit)
        return _caches[directory, limit]


def info() -> CacheInfo:
    """What the default cache holds."""
    return default().info()


def clear() -> int:
    """Empty the default cache; how many entries went."""
    return default().clear()

"""The object cache: hits, damage, eviction, two processes, directories it must not trust."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from luminal import config
from luminal.runtime import object_cache
from luminal.runtime.object_cache import HASH_BYTES, ObjectCache

MEBIBYTE = 1 << 20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "objects"


def entries(directory: Path) -> list[Path]:
    """All files, whatever their names."""
    return [path for path in directory.rglob("*") if path.is_file()]


def test_round_trip_in_another_instance(directory: Path) -> None:
    ObjectCache(directory, MEBIBYTE).put("k", b"payload")
    cache = ObjectCache(directory, MEBIBYTE)
    assert cache.get("k") == b"payload"
    assert cache.get("other") is None
    info = cache.info()
    assert (info.directory, info.entries, info.bytes) == (directory, 1, HASH_BYTES + 7)
    assert cache.clear() == 1
    assert cache.get("k") is None


def test_directory_and_entries_are_private(directory: Path) -> None:
    ObjectCache(directory, MEBIBYTE).put("k", b"payload")
    assert directory.stat().st_mode & 0o777 == 0o700
    (path,) = entries(directory)
    assert path.name == "k.o"
    assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:10],
        lambda data: b"",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: bytes([data[0] ^ 1]) + data[1:],
    ],
)
def test_damaged_entry_is_deleted(directory: Path, damage: Callable[[bytes], bytes]) -> None:
    cache = ObjectCache(directory, MEBIBYTE)
    cache.put("k", b"payload")
    (path,) = entries(directory)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("k") is None
    assert not path.exists()
    cache.put("k", b"again")
    assert cache.get("k") == b"again"


def test_least_recently_used_entries_go(directory: Path) -> None:
    size = 1000 + HASH_BYTES
    cache = ObjectCache(directory, 10 * size)
    for number in range(10):
        cache.put(str(number), b"x" * 1000)
        (path,) = directory.rglob(f"{number}.o")
        os.utime(path, (number, number))
    assert cache.get("0") is not None  # now the most recently used
    cache.put("new", b"x" * 1000)
    assert {path.stem for path in entries(directory)} == {"0", "new", *"3456789"}
    assert cache.info().bytes <= object_cache.EVICT_TO * cache.limit_bytes


def test_bound_holds_for_entries_of_earlier_processes(directory: Path) -> None:
    ObjectCache(directory, MEBIBYTE).put("old", b"x" * 5000)
    cache = ObjectCache(directory, 4000)
    cache.put("new", b"x" * 1000)
    assert [path.stem for path in entries(directory)] == ["new"]


def test_one_folder_tells_the_size_of_the_others(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where that says the bound is passed are all entries looked at."""
    full = ObjectCache(directory, MEBIBYTE)
    for number in range(40):
        full.put(object_cache.key(number), b"x" * 1000)
    looked: list[Path] = []
    files = object_cache._files

    def noted(folder: Path) -> Any:
        looked.append(folder)
        return files(folder)

    monkeypatch.setattr(object_cache, "_files", noted)
    ObjectCache(directory, MEBIBYTE).put(object_cache.key(40), b"x" * 1000)
    assert directory not in looked
    assert len(looked) == 1
    ObjectCache(directory, 30_000).put(object_cache.key(41), b"x" * 1000)
    assert looked[-1] == directory
    assert len(entries(directory)) == 26


def test_replacing_an_entry_keeps_one(directory: Path) -> None:
    cache = ObjectCache(directory, MEBIBYTE)
    cache.put("k", b"one")
    cache.put("k", b"two")
    assert cache.get("k") == b"two"
    assert cache.info().entries == 1


def test_unfinished_files_of_dead_processes_are_removed(directory: Path) -> None:
    cache = ObjectCache(directory, 100)
    old, fresh = directory / "a.part", directory / "b.part"
    old.touch()
    fresh.touch()
    past = time.time() - 2 * object_cache.STALE_SECONDS
    os.utime(old, (past, past))
    cache.put("k", b"x" * 200)
    assert not old.exists()
    assert fresh.exists()


def test_two_processes_share_a_directory(directory: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from luminal.runtime.object_cache import ObjectCache\n"
        "cache = ObjectCache(Path(sys.argv[1]), 200_000)\n"
        "for turn in range(300):\n"
        "    key = str(turn % 40)\n"
        "    found = cache.get(key)\n"
        "    assert found in (None, key.encode() * 4000), key\n"
        "    cache.put(key, key.encode() * 4000)\n"
    )
    command = [sys.executable, "-c", script, str(directory)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, b"")
    assert ObjectCache(directory, 200_000).info().entries > 0


def check_memory_only(make: Callable[[], ObjectCache], reason: str) -> None:
    def use() -> ObjectCache:
        cache = make()
        cache.put("k", b"payload")
        assert cache.get("k") == b"payload"
        return cache

    with pytest.warns(RuntimeWarning, match=reason) as seen:
        cache = use()
    assert len(seen) == 1
    assert cache.info().directory is None
    assert cache.info().entries == 1
    assert cache.clear() == 1


def test_directory_open_to_others_is_refused(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    check_memory_only(lambda: ObjectCache(directory, MEBIBYTE), "mode 755.*chmod it to 700")
    assert list(directory.iterdir()) == []


def test_directory_of_another_user_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory.mkdir(mode=0o700)
    stranger = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: stranger)
    check_memory_only(lambda: ObjectCache(directory, MEBIBYTE), "owned by user .*, not by you")


def test_link_is_refused(directory: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    directory.symlink_to(real)
    check_memory_only(lambda: ObjectCache(directory, MEBIBYTE), "not a directory")


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    check_memory_only(lambda: ObjectCache(file / "objects", MEBIBYTE), "Not a directory")


def test_directory_that_vanishes(directory: Path) -> None:
    cache = ObjectCache(directory, MEBIBYTE)
    directory.rmdir()
    check_memory_only(lambda: cache, "No such file")


def test_keys_depend_on_every_part_and_its_place() -> None:
    keys = {object_cache.key(*parts) for parts in (("a", "b"), ("ab",), ("a", "", "b"), ("b", "a"))}
    assert len(keys) == 4


def test_default_follows_the_flags(tmp_path: Path) -> None:
    with config.override(LUMINAL_CACHE_DIR=tmp_path, LUMINAL_CACHE_BYTES=12345):
        object_cache.default().put("k", b"payload")
        info = object_cache.info()
        assert (info.directory, info.entries, info.limit_bytes) == (tmp_path / "objects", 1, 12345)
        assert object_cache.default() is object_cache.default()
        assert object_cache.clear() == 1

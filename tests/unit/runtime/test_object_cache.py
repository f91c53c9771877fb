"""The object cache: hits, damage, eviction, two processes, directories it must not trust."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from luminal.base import config
from luminal.runtime import object_cache
from luminal.runtime.object_cache import HASH_BYTES, ObjectCache

MEBIBYTE = 1 << 20

HOLDER = """
import pathlib, sys, time
from luminal.runtime.object_cache import ObjectCache
with ObjectCache(pathlib.Path(sys.argv[1]), 1 << 20).alone("k"):
    print("inside", flush=True)
    time.sleep(600)
"""


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
    """That of the entry that is written; only where it says the bound is passed are all entries
    looked at.
    """
    full = ObjectCache(directory, MEBIBYTE)
    for number in range(40):
        full.put(object_cache.key(number), b"x" * 1000)
    looked: list[str] = []
    files = ObjectCache._files

    def noted(cache: ObjectCache, ending: str = ".o") -> Any:
        looked.append(ending)
        return files(cache, ending)

    monkeypatch.setattr(ObjectCache, "_files", noted)
    ObjectCache(directory, MEBIBYTE).put(object_cache.key(40), b"x" * 1000)
    assert not looked
    ObjectCache(directory, 30_000).put(object_cache.key(41), b"x" * 1000)
    assert looked
    assert len(entries(directory)) == 26


def test_replacing_an_entry_keeps_one(directory: Path) -> None:
    cache = ObjectCache(directory, MEBIBYTE)
    cache.put("k", b"one")
    cache.put("k", b"two")
    assert cache.get("k") == b"two"
    assert cache.info().entries == 1


def test_unfinished_files_of_dead_processes_are_removed(directory: Path) -> None:
    cache = ObjectCache(directory, 100)
    cache.put("kk", b"x")
    old, fresh = directory / "kk/a.part", directory / "kk/b.part"
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


# --- what it must not trust -----------------------------------------------------------------------


def test_the_object_of_another_key_is_built_again(directory: Path) -> None:
    """A whole, sound entry under the wrong name is code of another kernel."""
    cache = ObjectCache(directory, MEBIBYTE)
    cache.put("k1", b"code of one kernel")
    cache.put("k2", b"code of another one")
    (directory / "k2/k2.o").write_bytes((directory / "k1/k1.o").read_bytes())
    assert cache.get("k2") is None
    assert not (directory / "k2/k2.o").exists()
    assert cache.get("k1") == b"code of one kernel"


STRANGE: dict[str, Callable[[Path], Any]] = {
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "loop": lambda path: path.symlink_to(path.name),
    "fifo": os.mkfifo,
    "empty": lambda path: path.touch(),
}


@pytest.mark.parametrize("strange", STRANGE)
def test_what_is_no_entry_is_replaced(directory: Path, strange: str) -> None:
    cache = ObjectCache(directory, MEBIBYTE)
    cache.put("k", b"payload")
    (directory / "k/k.o").unlink()
    STRANGE[strange](directory / "k/k.o")
    assert cache.get("k") is None
    cache.put("k", b"again")
    assert cache.get("k") == b"again"
    assert (directory / "k/k.o").is_file()


def test_a_folder_in_the_place_of_an_entry_stays(directory: Path) -> None:
    """That entry alone is not kept, and no descriptor stays open."""
    cache = ObjectCache(directory, MEBIBYTE)
    cache.put("k", b"payload")
    cache.put("other", b"another")
    (directory / "k/k.o").unlink()
    (directory / "k/k.o/precious").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    assert cache.get("k") is None
    cache.put("k", b"again")
    assert cache.get("k") is None
    assert len(os.listdir("/proc/self/fd")) == before
    assert cache.get("other") == b"another"
    assert [path.name for path in (directory / "k").iterdir()] == ["k.o"]
    assert cache.clear() == 1
    assert (directory / "k/k.o/precious").is_dir()


def test_a_cache_that_is_only_read_is_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in an image of a machine is; what is new is in memory."""
    ObjectCache(directory, MEBIBYTE).put("k", b"payload")
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode, **where: mode == os.F_OK and real(path, mode)
    )
    with pytest.warns(RuntimeWarning, match="is not writable; what is new is kept in memory only"):
        cache = ObjectCache(directory, MEBIBYTE)
    assert cache.get("k") == b"payload"
    cache.put("new", b"made here")
    assert cache.get("new") == b"made here"
    assert [path.name for path in directory.iterdir()] == ["k"]


def check_memory_only(make: Callable[[], ObjectCache], reason: str) -> None:
    def use() -> ObjectCache:
        cache = make()
        cache.get("k")
        cache.put("k", b"payload")
        assert cache.get("k") == b"payload"
        return cache

    with pytest.warns(RuntimeWarning, match=reason) as seen:
        cache = use()
    assert len(seen) == 1
    assert cache.info().directory is None
    assert cache.info().entries == 1
    assert cache.clear() == 1


def mode_755(folder: Path) -> None:
    folder.chmod(0o755)


def mode_722(folder: Path) -> None:
    folder.chmod(0o722)


def mode_770(folder: Path) -> None:
    folder.chmod(0o770)


def link(folder: Path) -> None:
    real = folder.with_name("real")
    folder.rename(real)
    folder.symlink_to(real)


def file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


def stranger(folder: Path) -> None:
    os.chown(folder, 12345, -1)


UNSAFE = [
    (0, mode_722, r"root is open to other users \(mode 722\); chmod it to 700"),
    (0, mode_770, r"root is open to other users \(mode 770\)"),
    (0, link, "root is not a directory, or a link to one"),
    (0, stranger, "root is owned by user 12345, not by you"),
    (1, mode_755, r"objects is open to other users \(mode 755\)"),
    (1, mode_770, r"objects is open to other users"),
    (1, link, "objects is not a directory, or a link to one"),
    (1, file, "objects is not a directory, or a link to one"),
    (1, stranger, "objects is owned by user 12345, not by you"),
    (2, mode_755, r"objects/k is open to other users \(mode 755\)"),
    (2, link, "objects/k is not a directory, or a link to one"),
    (2, file, "objects/k is not a directory, or a link to one"),
    (2, stranger, "objects/k is owned by user 12345, not by you"),
]


@pytest.mark.parametrize(("depth", "spoil", "reason"), UNSAFE)
@pytest.mark.parametrize("is_open", [False, True])
def test_every_folder_is_checked_each_time(
    tmp_path: Path, depth: int, spoil: Callable[[Path], None], reason: str, is_open: bool
) -> None:
    """From the cache's root down, before the first use and in the midst of it."""
    if spoil is stranger and os.getuid() != 0:
        pytest.skip("only root gives folders away")
    directory = tmp_path / "root/objects"
    used = ObjectCache(directory, MEBIBYTE)
    used.put("k", b"code")
    folder = (directory.parent, directory, directory / "k")[depth]
    spoil(folder)

    def cache() -> ObjectCache:
        return used if is_open else ObjectCache(directory, MEBIBYTE)

    check_memory_only(cache, reason)
    if spoil is not file:
        kept = directory / "k/k.o"
        assert kept.read_bytes().endswith(b"code")  # nothing was written there


def test_others_may_look_into_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o755)
    ObjectCache(root / "objects", MEBIBYTE).put("k", b"code")
    assert ObjectCache(root / "objects", MEBIBYTE).get("k") == b"code"


def test_a_new_root_is_private(tmp_path: Path) -> None:
    ObjectCache(tmp_path / "some/new/root/objects", MEBIBYTE).put("k", b"code")
    assert (tmp_path / "some/new/root").stat().st_mode & 0o077 == 0


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    check_memory_only(lambda: ObjectCache(file / "objects", MEBIBYTE), "not a directory")
    check_memory_only(
        lambda: ObjectCache(file / "a/objects", MEBIBYTE), "Not a directory|File exists"
    )


def test_directory_that_vanishes_is_made_again(directory: Path) -> None:
    cache = ObjectCache(directory, MEBIBYTE)
    cache.put("k", b"one")
    shutil.rmtree(directory)
    assert cache.get("k") is None
    assert cache.info().entries == 0
    cache.put("k", b"two")
    assert cache.get("k") == b"two"


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


def make(cache: ObjectCache, made: list[str], name: str) -> None:
    """What makers of an entry do: look again once alone, and make what is not there."""
    with cache.alone("k"):
        if cache.get("k") is None:
            made.append(name)
            time.sleep(0.1)
            if name == "broken":
                raise ValueError(name)
            cache.put("k", b"payload")


def test_one_of_several_makes_an_entry(directory: Path) -> None:
    caches, made = [ObjectCache(directory, MEBIBYTE) for _ in range(2)], list[str]()
    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(make, caches[k % 2], made, str(k)) for k in range(6)]
    assert [future.exception() for future in futures] == [None] * 6
    assert len(made) == 1
    assert caches[0].clear() == 1  # the lock is no entry


def test_the_next_one_makes_what_the_first_one_failed_to(directory: Path) -> None:
    cache, made = ObjectCache(directory, MEBIBYTE), list[str]()
    with ThreadPoolExecutor(2) as pool:
        broken = pool.submit(make, cache, made, "broken")
        while not made:
            time.sleep(0.001)
        pool.submit(make, cache, made, "second").result()
    assert isinstance(broken.exception(), ValueError)
    assert made == ["broken", "second"]


def test_nobody_waits_for_a_process_that_was_killed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_cache, "LOCK_SECONDS", 60.0)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "inside\n"
    cache, made = ObjectCache(directory, MEBIBYTE), list[str]()
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(make, cache, made, "heir")
        time.sleep(0.1)
        assert not made
        holder.kill()
        waits.result(10)
    assert made == ["heir"]
    holder.communicate()


def test_nobody_waits_for_ever(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "LOCK_SECONDS", 0.05)
    cache, made = ObjectCache(directory, MEBIBYTE), list[str]()
    with ObjectCache(directory, MEBIBYTE).alone("k"):
        make(cache, made, "late")
    assert made == ["late"]


def test_a_cache_in_memory_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(RuntimeWarning, match="kept in memory only"):
        cache = ObjectCache(tmp_path / "file" / "objects", MEBIBYTE)
    made: list[str] = []
    make(cache, made, "one")
    make(cache, made, "two")
    assert made == ["one"]

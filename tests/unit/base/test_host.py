"""The host's facts on each system, and the package on a system that lacks what POSIX has."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from luminal.base import config, host
from luminal.base.host import darwin, linux, posix, windows


class Kernel:
    """A library whose sysctlbyname knows these numbers."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self.numbers = numbers

    def sysctlbyname(self, name: bytes, value: Any, size: Any, *new: object) -> int:
        number = self.numbers.get(name.decode())
        if number is None:
            return -1
        value._obj.value = number
        return 0


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What the kernel of a Mac says, to be filled."""
    numbers: dict[str, int] = {}
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Kernel(numbers))
    return numbers


def test_of_a_macs_cores_the_fast_ones_count(
    mac: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    mac.update(
        {"hw.perflevel0.logicalcpu": 6, "hw.perflevel1.logicalcpu": 2, "hw.memsize": 8 << 30}
    )
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert darwin.core_ids() == [0, 1, 2, 3, 4, 5]
    assert darwin.memory() == (8 << 30, None)
    del mac["hw.perflevel0.logicalcpu"]  # one of Intel's
    assert len(darwin.core_ids()) == 8


def test_caches_of_a_mac(mac: dict[str, int]) -> None:
    fast = {"l1dcachesize": 128 << 10, "l2cachesize": 12 << 20, "cpusperl2": 4}  # an M1's
    mac.update({f"hw.perflevel0.{name}": number for name, number in fast.items()})
    mac.update({"hw.l1dcachesize": 64 << 10, "hw.l2cachesize": 4 << 20})
    assert [darwin.cache_bytes(level) for level in (1, 2, 3)] == [128 << 10, 3 << 20, 12 << 20]
    mac.clear()
    intel = {"l1dcachesize": 32 << 10, "l2cachesize": 256 << 10, "l3cachesize": 8 << 20}
    mac.update({f"hw.{name}": number for name, number in intel.items()})
    assert [darwin.cache_bytes(level) for level in (1, 2, 3)] == [*intel.values()]
    mac.clear()
    assert darwin.cache_bytes(2) is None


def test_caches_of_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux, "CACHES", tmp_path)
    rows = [("Instruction", 1, "64K"), ("Data", 1, "32K"), ("Unified", 2, "1M"), ("odd", 3, "")]
    for number, (kind, level, size) in enumerate(rows):
        index = tmp_path / f"index{number}"
        index.mkdir()
        for name, text in (("type", kind), ("level", str(level)), ("size", size)):
            (index / name).write_text(f"{text}\n")
    assert [linux.cache_bytes(level) for level in (1, 2, 3)] == [32 << 10, 1 << 20, None]


def test_of_big_and_little_cores_those_count_that_keep_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A phone's chip: four little, two middling, one big core, and one that is not told about."""
    monkeypatch.setattr(linux, "CPUS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    for core, capacity in enumerate([250, 250, 250, 250, 800, 512, 1024]):
        (tmp_path / f"cpu{core}").mkdir()
        (tmp_path / f"cpu{core}" / "cpu_capacity").write_text(f"{capacity}\n")
    linux._capacity.cache_clear()
    try:
        assert (linux.core_ids(), linux.slow_core_ids()) == ([4, 5, 6, 7], [0, 1, 2, 3])
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 2}, raising=False)
        assert (linux.core_ids(), linux.slow_core_ids()) == ([1, 2], [])
    finally:
        linux._capacity.cache_clear()


def test_a_mac_opens_no_more_files_than_its_kernel_allows(
    mac: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(posix.resource, "getrlimit", lambda kind: (256, 2**63 - 1))
    monkeypatch.setattr(posix.resource, "setrlimit", lambda kind, both: limits.append(both))
    mac["kern.maxfilesperproc"] = 61_440
    assert darwin.raise_open_files(32) == 61_440
    assert linux.raise_open_files(32) == 2**63 - 1
    assert darwin.raise_open_files(61_440) == 61_440  # which is too few: nothing is changed
    assert limits == [(61_440, 2**63 - 1), (2**63 - 1, 2**63 - 1)]


def test_peaks_are_bytes_on_both_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posix, "peak", lambda: 7)
    assert darwin.peak_bytes() == 7
    assert linux.peak_bytes() == 7 * 1024


def test_processes_and_when_they_have_begun() -> None:
    """Here, by the kernel and by ps: those of this process, and none that has ended."""
    program = "import subprocess, sys; print(flush=True); subprocess.run([sys.executable, '-c', "
    command = [sys.executable, "-c", program + "'input()'])"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as popen:
        assert popen.stdout is not None
        popen.stdout.readline()
        for system in (linux, darwin):
            while len(begun := system.beginnings(popen.pid)) < 2:
                pass
            assert next(iter(begun)) == popen.pid
            assert begun == system.beginnings(popen.pid)
            assert begun.items() <= system.beginnings(os.getpid()).items()
        assert windows.beginnings(popen.pid) == {}
        popen.kill()
        child = [*begun][1]
        os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
        for system in (linux, darwin):
            assert system.beginnings(popen.pid) == {}, "it has ended, and nobody has asked how"
        os.kill(child, 9)


def test_memory_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Windows:
        @staticmethod
        def GlobalMemoryStatusEx(status: Any) -> int:
            assert status._obj.length == 64  # what MEMORYSTATUSEX takes
            status._obj.total, status._obj.free = 16 << 30, 5 << 30
            return 1

    monkeypatch.setattr(ctypes, "WinDLL", lambda name: Windows, raising=False)
    assert windows.memory() == (16 << 30, 5 << 30)


def test_this_host_knows_itself() -> None:
    total, free = host.memory()
    assert total is None or free is None or 0 < free <= total
    assert host.core_ids()
    assert (host.peak_bytes() or 1 << 30) > 1 << 20


ELSEWHERE = """
import importlib, os, pkgutil, sys, asyncio, email, llvmlite.binding, multiprocessing.connection
import http.client, numpy, ml_dtypes, platformdirs, rich.console, rich.progress, rich.table
import sqlite3, subprocess, tempfile, tokenizers, typer, uuid, cloudpickle, concurrent.futures
import onnx, uvicorn, starlette.applications, jinja2, prometheus_client, huggingface_hub
import ctypes, importlib.util
sys.platform = sys.argv[2]
WITHOUT_LLVM = sys.argv[3:] == ["without-llvm"]
libraries = ctypes.CDLL
for name in ("sched_getaffinity", "sched_setaffinity", "memfd_create"):
    delattr(os, name)
if sys.platform == "win32":
    for name in ("fcntl", "resource", "termios", "pwd", "grp"):
        sys.modules[name] = None
    for name in (
        "fork", "register_at_fork", "sched_yield", "sysconf", "sysconf_names", "getuid", "geteuid",
        "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "killpg", "getpgid",
        "setsid", "nice", "mkfifo", "uname",
    ):
        delattr(os, name)
    os.O_BINARY, os.O_NOINHERIT = 0, os.open("/dev/null", 0) * 0
    ctypes.CDLL = lambda name, *rest, **more: libraries(
        None if name == "ucrtbase" else name, *rest, **more
    )
    class Windows:
        GlobalMemoryStatusEx = staticmethod(lambda status: 0)
    ctypes.WinDLL = lambda name: Windows
else:
    class Mac:
        def __init__(self, name, *rest, **more):
            self.library = libraries(name, *rest, **more)
        def __getattr__(self, name):
            return getattr(self.library, name)
        def sysctlbyname(self, *arguments):
            return -1
    ctypes.CDLL = Mac
if WITHOUT_LLVM:  # where there is no wheel of it
    for name in [name for name in sys.modules if name.split(".")[0] == "llvmlite"]:
        sys.modules[name] = None
    find_spec = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: (
        None if name == "llvmlite" else find_spec(name, *rest)
    )
import luminal as lm
from tests.lint.platforms import ONLY_LINUX, ONLY_POSIX
only = tuple(
    path.removeprefix("src/").removesuffix(".py").rstrip("/").replace("/", ".")
    for path in (*ONLY_LINUX, *(ONLY_POSIX if sys.platform == "win32" else ()))
)
if WITHOUT_LLVM:
    only += ("luminal.backends.cpu.machine_code",)
beside = *only, *(
    f"luminal.{name}" for name in (
        "torch_backend", "pt2", "serve", "__main__", "runtime.collectives.started",
        "backends.cuda", "backends.hip", "backends.metal", "backends.opencl",  # of extras
        "runtime.collectives.mpi",  # likewise, and it looks for the system's own library
    )
)
for module in pkgutil.walk_packages(lm.__path__, "luminal."):
    if not module.name.startswith(beside):
        importlib.import_module(module.name)
cx = lm.Graph()
x = cx.tensor((2, 3), name="x")
(x.exp().sum(1)).output("y")
from luminal.base import host
exe = lm.compile(cx, backend="reference")
print(exe({"x": numpy.zeros((2, 3), numpy.float32)})["y"], host.core_ids.__module__)
devices = {device.name: device for device in lm.devices()}
print(devices["reference"].usable, devices["cpu"].reason)
from luminal.runtime.object_cache import ObjectCache
from pathlib import Path
cache = ObjectCache(Path(sys.argv[1]) / "a" / "objects", 1 << 20)
cache.put("ab12", b"code")
print(cache.get("ab12"), cache.info().entries, cache.clear(), cache.get("ab12"))
from luminal.cli.main import app
for words in (["launch", "x.py"], ["env"]):
    if words[0] == "launch" and sys.platform != "win32":
        continue
    try:
        app(words, standalone_mode=False)
    except lm.InputError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("words", "module"),
    [
        (("win32",), "windows"),
        pytest.param(("darwin",), "darwin", marks=pytest.mark.long),
        pytest.param(("darwin", "without-llvm"), "darwin", marks=pytest.mark.long),
    ],
)
def test_everything_imports_and_the_reference_runs_on_other_systems(
    words: tuple[str, ...], module: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path), *words],
        capture_output=True,
        text=True,
        check=False,
        env=config.child_environment(),
    )
    assert not done.returncode, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0] == f"[3. 3.] luminal.base.host.{module}"
    if len(words) > 1:
        assert lines[1].startswith("True llvmlite is not installed (Macs with Intel's processors")
    else:
        assert lines[1] == "True None"
    assert lines[2] == "b'code' 1 1 None"
    if module == "windows":
        assert lines[3] == "luminal launch needs Linux or macOS (on Windows, WSL)"
    assert any(line.startswith("python ") for line in lines)

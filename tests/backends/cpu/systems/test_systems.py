"""The CPU backend as on macOS and Windows: their pages, waits, threads and conventions."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from luminal.backends.cpu import apple, host, libraries, linker, machine_code, systems, target
from luminal.backends.cpu.systems import darwin, posix, windows
from luminal.backends.cpu.team_ir import team_ir
from luminal.base import config
from luminal.base.errors import CompileError
from luminal.codegen.llvm_product import SYMBOLS
from tests.backends.cpu.systems import stand_in
from tests.backends.cpu.systems.memory import Mac, Windows
from tests.long_share import mostly_long

LINUX = posix.libc()
COUNTER = """
@count = internal global i64 40, align 64
@step = private constant [2 x i64] [i64 1, i64 2], align 64
define i64 @kernel(i64 %which) {
  %at = getelementptr [2 x i64], ptr @step, i64 0, i64 %which
  %step = load i64, ptr %at
  %old = load i64, ptr @count
  %new = add i64 %old, %step
  store i64 %new, ptr @count
  ret i64 %new
}
"""


def run(system: Any, patch: pytest.MonkeyPatch) -> int:
    """Links code by a system's pages and runs it twice; the address of the code."""
    for name in ("mapped", "fill", "unmap", "find"):
        patch.setattr(systems, name, getattr(system, name))
    code = linker.link(machine_code.compile_object(COUNTER, target.detect()), ("kernel",), {})
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address)
    assert (function(0), function(1)) == (41, 43)
    return code.address


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> Mac:
    """The libraries of a Mac with Apple silicon, where this process asks for libraries."""
    libraries = Mac(lambda name: None)
    monkeypatch.setattr(posix, "libc", lambda: libraries)
    monkeypatch.setattr(darwin, "libc", lambda: libraries)
    darwin._switch.cache_clear()
    monkeypatch.setattr(darwin, "_switch", darwin._switch.__wrapped__)
    return libraries


def test_a_mac_writes_code_while_its_switch_says_so(
    mac: Mac, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = run(darwin, monkeypatch) & -systems.PAGE
    assert mac.switched == [0, 1]
    assert mac.invalidated == [(start, systems.PAGE)]
    gc.collect()


def test_a_write_that_fails_leaves_a_mac_running(mac: Mac, monkeypatch: pytest.MonkeyPatch) -> None:
    start = darwin.mapped(3 * systems.PAGE, systems.PAGE)
    monkeypatch.setattr(posix, "write", lambda start, image: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        darwin.fill(start, bytearray(3), systems.PAGE, systems.PAGE)
    assert mac.switched == [0, 1]
    darwin.unmap(start, 3 * systems.PAGE)


@pytest.mark.parametrize("has_switch", [True, False], ids=["intel", "before-11"])
def test_a_mac_that_needs_no_switch_is_as_linux(
    has_switch: bool, mac: Mac, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Libraries:
        mmap, mprotect, munmap = LINUX.mmap, LINUX.mprotect, LINUX.munmap

    if has_switch:
        monkeypatch.setattr(
            Libraries, "pthread_jit_write_protect_supported_np", lambda: 0, raising=False
        )
    for module in (posix, darwin):
        monkeypatch.setattr(module, "libc", lambda: Libraries)
    run(darwin, monkeypatch)
    gc.collect()
    assert mac.switched == []


def test_windows_flushes_what_it_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Windows(lambda name: 8 if name == "sin" else None)
    monkeypatch.setattr(windows, "_library", lambda name: kernel)
    monkeypatch.setattr(windows, "_kernel", windows._kernel.__wrapped__)
    start = run(windows, monkeypatch) & -systems.PAGE
    assert kernel.flushed == [(start, systems.PAGE)]
    assert windows.find("sin") == 8
    monkeypatch.setattr(ctypes, "pythonapi", kernel)
    assert windows.find("sine") is None
    gc.collect()
    assert not kernel._sizes


@pytest.mark.parametrize("name", mostly_long(["windows", "darwin"], 1))
def test_programs_run_as_on_another_system(name: str, tmp_path: Path) -> None:
    done = in_a_process_of_its_own(name, tmp_path)
    assert done.stdout.startswith("pieces of code: "), done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 10


@pytest.mark.long
@pytest.mark.parametrize("name", stand_in.SYSTEMS)
def test_teams_and_the_op_table_as_on_another_system(name: str, tmp_path: Path) -> None:
    # Not there: processes that these tests start, which are Linux's, and what calls code directly.
    less = "not subnormals and not spawned and not one_cpu and not exit_with and not signals"
    folder = "tests/backends/cpu"
    files = [f"{folder}/test_{part}.py" for part in ("team", "team_threads", "op_table")]
    done = in_a_process_of_its_own(name, tmp_path, *files, "-k", less)
    assert done.returncode == 0, done.stdout[-3000:]


WRITES = """
import sys
from tests.backends.cpu.systems import stand_in
if sys.argv[1] != "linux":
    stand_in.install(sys.argv[1])
from luminal.cli.main import app
words = "generate --model= --prompt ROMEO: --temperature 0 --max-tokens 60"
app(words.split(), standalone_mode=False)
"""


@pytest.mark.long
def test_the_shipped_model_writes_one_text_on_all_systems(tmp_path: Path) -> None:
    texts = {
        name: subprocess.run(
            [sys.executable, "-c", WRITES, name],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            env={**config.child_environment(), "LUMINAL_CACHE_DIR": str(tmp_path)},
        ).stdout
        for name in ("linux", *stand_in.SYSTEMS)
    }
    assert len(set(texts.values())) == 1
    assert len(texts["linux"]) > 100


def in_a_process_of_its_own(
    name: str, cache: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.backends.cpu.systems.stand_in", name, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**config.child_environment(), "LUMINAL_CACHE_DIR": str(cache)},
    )


M1 = ("hw.optional.neon", *(f"hw.optional.arm.FEAT_{n}" for n in ("LSE", "RDM", "FP16", "DotProd")))
M2 = (*M1, "hw.optional.arm.FEAT_BF16", "hw.optional.arm.FEAT_I8MM")


@pytest.mark.parametrize(
    ("numbers", "level"), [(("hw.optional.neon",), "neon"), (M1, "v8.2"), (M2, "v8.6")]
)
def test_levels_of_apple_silicon(
    numbers: tuple[str, ...], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses() -> dict[str, bool]:
        raise RuntimeError("LLVM asks for no features here")

    binding = machine_code.llvm
    monkeypatch.setattr(binding, "get_process_triple", lambda: "arm64-apple-darwin24.1.0")
    monkeypatch.setattr(binding, "get_host_cpu_features", refuses)
    monkeypatch.setattr(binding, "get_host_cpu_name", lambda: "apple-m1")
    monkeypatch.setattr(apple, "sysctl", lambda name: int(name in numbers) or None)
    monkeypatch.setattr(host, "CPUINFO", Path("/there/is/none"))
    monkeypatch.setattr(target, "host_facts", host.host.__wrapped__)
    facts = target.detect.__wrapped__()
    assert facts.triple == "arm64-apple-darwin24.1.0-elf"
    wanted = target.AARCH64.levels[level]
    assert (facts.vector_bits, facts.registers) == (wanted.vector_bits, wanted.registers)
    assert set(wanted.features) <= set(facts.features)
    assert facts.dots == target.dots_of(target.AARCH64, wanted.features)
    assert target.cap(facts, level).name == level


def test_products_by_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    package = libraries._library()
    if package is None:
        pytest.skip("scipy-openblas32, which stands in, is not installed")
    openblas, told = ctypes.CDLL(package.path), list[int]()

    class Accelerate:
        cblas_sgemm, cblas_dgemm = openblas.scipy_cblas_sgemm, openblas.scipy_cblas_dgemm
        BLASSetThreading = staticmethod(told.append)

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", {libraries.ACCELERATE: Accelerate}.__getitem__)
    assert libraries.installed() == (libraries.BLAS,)
    found = libraries.addresses(SYMBOLS)
    assert told == [1]  # no threads of its own
    assert [*found] == [*SYMBOLS]
    assert found[SYMBOLS[0]] == ctypes.cast(openblas.scipy_cblas_sgemm, ctypes.c_void_p).value
    del Accelerate.BLASSetThreading
    monkeypatch.setattr(libraries, "_load", libraries._load.__wrapped__)
    assert libraries.addresses(SYMBOLS) == found


def test_a_system_without_a_team_is_named() -> None:
    for triple in ("aarch64-pc-windows-msvc-elf", "x86_64-unknown-freebsd14-elf"):
        with pytest.raises(CompileError, match=f"cpu backend: {triple}: only Linux, macOS, and"):
            team_ir(triple, systems.find)

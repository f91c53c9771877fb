"""Kernels compiled by a thread and by helper processes: the same code, whatever becomes of them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import luminal as lm
from luminal.backends.cpu import ahead, backend, beside, kernels, machine_code, target
from luminal.backends.cpu.ahead import Ahead
from luminal.base import config
from luminal.base.errors import CompileError
from luminal.compiler.compile import lower_by_stages
from luminal.kernel.tile_ir import Kernel
from luminal.kernel.tile_text import to_text

COUNT = 24


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Ahead]:
    """Helpers start early and have all the work, and nothing is in the object cache."""
    monkeypatch.setattr(beside, "DEPTH", 0)
    monkeypatch.setattr(beside.Beside, "give", lambda self, key, kernel: None)
    monkeypatch.setattr(ahead, "MANY", 6)
    monkeypatch.setattr(ahead, "BATCH", 3)
    monkeypatch.setattr(ahead, "core_ids", lambda: [0, 1, 2, 3])
    mine = Ahead()
    monkeypatch.setattr(mine, "_may_start", 1)
    monkeypatch.setattr(ahead, "ahead", mine)
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        yield mine


def graph() -> lm.Graph:
    """One that needs many kernels."""
    cx = lm.Graph()
    for k in range(COUNT):
        cx.tensor((2 * k + 3, k + 2), name=f"x{k}").exp().sum(0).output(f"y{k}")
    return cx


def some_kernels() -> list[tuple[str, Kernel]]:
    program = lower_by_stages(graph().graph(), backend.current()).program
    assert len(program.kernels) == COUNT
    return [(to_text(kernel), kernel) for kernel in program.kernels]


def wait_for(helper: ahead.Helper) -> None:
    """Till it has said that it is ready, or answered."""
    select.select([helper._process.stdout], [], [])


def nothing(helper: ahead.Helper) -> None:
    pass


def killed(helper: ahead.Helper) -> None:
    os.kill(helper._process.pid, signal.SIGKILL)


@pytest.mark.parametrize("fate", [nothing, killed])
def test_code_is_the_same_whoever_makes_it(
    few: Ahead, fate: Callable[[ahead.Helper], None]
) -> None:
    found, here = some_kernels(), target.current()
    alone = [kernels.object_code(kernel, here) for _, kernel in found]
    for text, kernel in found:
        few.begin((text, here), kernel, lambda key: False)
    (helper,) = few._helpers
    wait_for(helper)
    few._feed()
    assert [len(batch) for batch in helper.batches] == [3, 2]  # of 24 that wait, of 21
    fate(helper)
    made = [few.take((text, here)) for text, _ in found]
    assert all(code in (None, wanted) for code, wanted in zip(made, alone, strict=True))
    assert any(made) == (fate is nothing)
    assert not few._helpers
    assert helper._process.poll() is not None  # it ended with its work
    if fate is killed:  # no other is started in its place
        for text, kernel in found:
            few.begin((text, here), kernel, lambda key: False)
        assert not few._helpers


def test_a_compile_takes_what_helpers_made(few: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = []
    here = kernels.object_code
    monkeypatch.setattr(kernels, "object_code", lambda *args: mine.append(args) or here(*args))
    start = few._start
    monkeypatch.setattr(few, "_start", lambda: (start(), wait_for(few._helpers[0])))
    cx = graph()
    lm.compile(cx)
    assert len(mine) <= COUNT - 3  # a batch at least came from the helper
    mine.clear()
    lm.compile(cx)  # and put it into the cache
    assert not mine
    assert not few._waiting
    assert not few._made


def test_where_no_process_starts_the_caller_compiles_all(
    few: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead.sys, "executable", "/nowhere/python")
    for text, kernel in some_kernels():
        few.begin((text, target.current()), kernel, lambda key: False)
        assert not few._helpers
    assert [few.take((text, target.current())) for text, _ in some_kernels()] == [None] * COUNT


def test_a_large_graph_has_a_helper_before_any_kernel_is_placed(
    few: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    monkeypatch.setattr(few, "_start", lambda: started.append(len(few._waiting)))
    monkeypatch.setattr(ahead, "MANY", 2 * COUNT)
    with config.override(LUMINAL_VERIFY=False):
        lm.compile(graph())
        assert not started
        monkeypatch.setattr(ahead, "LARGE", 2 * COUNT)
        lm.compile(graph(), numerics="exact")  # another program
    assert started == [0]


def test_a_helper_that_is_not_ready_is_given_nothing(few: Ahead) -> None:
    few.expect(ahead.LARGE)
    (helper,) = few._helpers
    os.kill(helper._process.pid, signal.SIGSTOP)
    for text, kernel in some_kernels():
        few.begin((text, target.current()), kernel, lambda key: False)
        assert not helper.batches
    assert all(few.take((text, target.current())) is None for text, _ in some_kernels())
    assert helper._process.poll() is not None


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Ahead]:
    """One on a machine of two cores, which starts no process."""
    monkeypatch.setattr(ahead, "core_ids", lambda: [0, 1])
    mine = Ahead()
    mine.expect(ahead.LARGE)
    assert not mine._helpers  # no core is left for one
    monkeypatch.setattr(mine, "_may_start", 0)
    monkeypatch.setattr(ahead, "ahead", mine)
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        yield mine


def workers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "luminal-compile"]


def test_a_thread_makes_the_code_of_all_kernels(
    thread: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, here = some_kernels(), target.current()
    alone = [kernels.object_code(kernel, here) for _, kernel in found]
    usual = sys.getswitchinterval()
    for text, kernel in found:
        thread.begin((text, here), kernel, lambda key: False)
        thread.begin((text, here), kernel, lambda key: False)  # is not made twice
    (worker,) = workers()
    assert [thread.take((text, here)) for text, _ in found] == alone
    worker.join(10)
    assert not workers()
    assert sys.getswitchinterval() == usual
    assert thread.take((found[0][0], here)) is None

    monkeypatch.setattr(kernels, "object_code", None)  # nothing is left to the caller
    lm.compile(graph())
    started = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", None)
    lm.compile(graph(), numerics="exact")  # is in the cache: there is no work for a thread
    monkeypatch.setattr(threading.Thread, "start", started)


def test_what_cannot_be_compiled_is_left_to_the_caller(
    thread: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text, kernel), *others = some_kernels()
    here = target.current()

    def refused(*args: object) -> bytes:
        raise CompileError("no")

    monkeypatch.setattr(machine_code, "compile_object", refused)
    thread.begin((text, here), kernel, lambda key: False)
    assert thread.take((text, here)) is None
    monkeypatch.undo()
    key = (others[0][0], here)
    thread.begin(key, others[0][1], lambda key: False)
    assert thread.take(key) == kernels.object_code(others[0][1], here)


def test_one_core_has_neither_thread_nor_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "core_ids", lambda: [0])
    (text, kernel), *_ = some_kernels()
    alone, key = Ahead(), (text, target.current())
    alone.begin(key, kernel, lambda key: False)
    assert alone.take(key) is None
    assert not alone._waiting


EXIT = """
import luminal as lm
from luminal.backends.cpu import ahead, kernels
ahead.ahead.take = lambda key: exit(3)  # in the middle of a compile, with kernels under way
cx = lm.Graph()
for k in range(24):
    cx.tensor((2 * k + 3, k + 2), name=f"x{k}").exp().sum(0).output(f"y{k}")
lm.compile(cx)
"""


@pytest.mark.long
def test_a_process_ends_with_kernels_under_way(tmp_path: Path) -> None:
    env = {**os.environ, "LUMINAL_CACHE_DIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", EXIT], env=env, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (3, b"")


def test_a_thread_that_ends_before_it_has_taken_all_leaves_no_process(few: Ahead) -> None:
    # Threads that compile equal kernels, as ranks do, find those in place that another has built.
    started: list[subprocess.Popen[bytes]] = []

    def announce() -> None:
        few._may_start = 1  # of this thread
        for text, kernel in some_kernels():
            few.begin((text, backend.current().target), kernel, lambda key: False)
        started.extend(helper._process for helper in few._helpers)

    thread = threading.Thread(target=announce)
    thread.start()
    thread.join()
    assert [process.wait(10) for process in started] == [-signal.SIGKILL]


def test_a_compiling_thread_ends_with_who_gave_it_kernels() -> None:
    one = beside.Beside()
    text, kernel = some_kernels()[0]
    one.give((text, backend.current().target), kernel)
    thread = one._thread
    assert thread is not None
    del one
    thread.join(10)
    assert not thread.is_alive()

"""Forks while other threads run and compile: the child computes, and waits for none of them."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import device
from luminal.base import config, forks, garbage
from luminal.runtime import pauses
from tests.backends.cpu.forked import CHILD_SECONDS, in_child, threads
from tests.long_share import mostly_long

# Forking a process that has threads is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def product(size: int = 256) -> tuple[lm.Executable, Any, Any]:
    """`softmax(x @ w)`, its input and result."""
    cx = lm.Graph()
    x, w = cx.tensor((size, size), name="x"), cx.weight((size, size), name="w")
    (x @ w).softmax(-1).output("y")
    exe = lm.compile(cx)
    rng = np.random.default_rng(0)
    exe.set({"w": rng.standard_normal((size, size), np.float32)})
    given = rng.standard_normal((size, size), np.float32)
    return exe, given, exe({"x": given})["y"].copy()


@pytest.mark.parametrize("team", mostly_long([2, 1], 1))
def test_the_program_that_another_thread_runs(monkeypatch: Any, team: int) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -np.inf)
    with config.override(LUMINAL_THREADS=team):
        exe, x, expected = product()

        def check() -> None:
            for _ in range(3):
                assert np.array_equal(exe({"x": x})["y"], expected)
            assert np.array_equal(exe({"x": x[:, ::-1]})["y"], exe({"x": x[:, ::-1].copy()})["y"])

        with threads(lambda: exe({"x": x}), lambda: exe({"x": x})):
            for _ in range(5):
                in_child(check)
        check()


def test_states_are_whole_in_the_child() -> None:
    """A fork waits for a run: no element of a State is ahead of the others."""
    cx = lm.Graph()
    held = cx.state((1 << 18,), name="counts")
    counts = held.state
    cx.assign(counts, held + 1)
    held.sum().output("y")
    exe = lm.compile(cx)

    def check() -> None:
        before = counts.numpy()
        assert (before == before[0]).all()
        exe()
        assert (counts.numpy() == before[0] + 1).all()

    with threads(exe):
        for _ in range(5):
            in_child(check)


@pytest.mark.long
def test_new_programs_while_another_thread_compiles() -> None:
    numbers = iter(range(10**9))

    def compiled(scale: float) -> None:
        cx = lm.Graph()
        (cx.tensor((7, 5), name="x") * scale).exp().output("y")
        exe = lm.compile(cx)
        ones = np.ones((7, 5), np.float32)
        # exp of what is rounded once: 80 ulp tell scales apart
        np.testing.assert_allclose(exe({"x": ones})["y"], np.exp(ones * scale), rtol=1e-5)

    def check() -> None:
        compiled(0.5)
        assert gc.isenabled()

    with threads(lambda: compiled(1 + next(numbers) % 1000 / 1000)):
        for _ in range(5):
            in_child(check)


def test_attributes_are_computed_without_a_lock() -> None:
    """Another thread may be in the midst of it."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow:
        @forks.cached_property
        def value(self) -> int:
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                assert go_on.wait(60)
            return 7

    thread = threading.Thread(target=lambda: Slow().value)
    thread.start()
    assert inside.wait(60)
    slow = Slow()
    try:
        in_child(lambda: slow.value)
        assert slow.value == slow.__dict__["value"] == 7
    finally:
        go_on.set()
        thread.join()


def test_a_function_under_jit() -> None:
    @lm.jit
    def doubled(x: Any) -> Any:
        return (x @ x) * 2

    x = np.eye(64, dtype=np.float32)

    def check() -> None:
        assert np.array_equal(doubled(x), 2 * x)
        assert doubled(np.eye(3, dtype=np.float32)).shape == (3, 3)

    with threads(lambda: doubled(x)):
        for _ in range(5):
            in_child(check)


def test_a_run_that_lasts_longer_than_a_fork_waits(monkeypatch: Any) -> None:
    """The child forgets it; a kernel in Python may be in the midst of it."""
    monkeypatch.setattr(pauses, "FORK_SECONDS", 0.1)
    inside, go_on = threading.Event(), threading.Event()

    def waits(x: Any, y: Any) -> None:
        y[...] = x + 1
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            assert go_on.wait(60)

    cx = lm.Graph()
    held = cx.state((4,), name="count")
    count = held.state
    cx.assign(count, held + 1)
    plus = lm.custom_kernel("plus", waits, results=lambda x: x)
    (plus(cx.tensor((4,), name="x")) * 2).output("y")
    exe = lm.compile(cx)
    x = np.arange(4, dtype=np.float32)
    expected = 2 * (x + 1)
    thread = threading.Thread(target=exe, args=({"x": x},))
    thread.start()
    try:
        assert inside.wait(60)

        def check() -> None:
            for _ in range(3):
                assert np.array_equal(exe({"x": x})["y"], expected)
            assert count.numpy().tolist() == [3] * 4

        start = time.monotonic()
        in_child(check)
        assert time.monotonic() - start < CHILD_SECONDS / 2
    finally:
        go_on.set()
        thread.join()
    assert np.array_equal(exe({"x": x})["y"], expected)
    assert count.numpy().tolist() == [2] * 4


@pytest.mark.long
def test_two_threads_fork_at_once() -> None:
    exe, x, expected = product(64)

    def check() -> None:
        assert np.array_equal(exe({"x": x})["y"], expected)

    with threads(lambda: exe({"x": x}), lambda: in_child(check), lambda: in_child(check)):
        for _ in range(3):
            in_child(check)
    check()


def test_a_fork_inside_a_run() -> None:
    """The forking thread's own run goes on in both processes, as far as it needs no team."""
    children: list[int] = []

    def forks_once(x: Any, y: Any) -> None:
        y[...] = x
        if not children:
            children.append(os.fork())

    cx = lm.Graph()
    lm.custom_kernel("forks", forks_once, results=lambda x: x)(cx.tensor((4,), name="x")).output()
    exe = lm.compile(cx)
    x = np.ones(4, np.float32)
    with config.override(LUMINAL_THREADS=1):
        status = 1
        try:
            exe({"x": x})
            exe({"x": x})
            status = 0
        finally:
            if children[0] == 0:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


def test_the_collector_runs_in_a_child() -> None:
    """Its thread left while it held the collector still."""
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with garbage.held():
            inside.set()
            go_on.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(60)
    try:

        def check() -> None:
            assert gc.isenabled()
            with garbage.held():
                assert not gc.isenabled()
            assert gc.isenabled()

        in_child(check)
    finally:
        go_on.set()
        thread.join()
    assert gc.isenabled()


@pytest.mark.parametrize("make", [forks.lock, forks.rlock])
def test_locks_are_free_in_a_child(make: Callable[[], Any]) -> None:
    mine, theirs = make(), make()
    thread = threading.Thread(target=theirs.acquire)
    thread.start()
    thread.join()
    mine.acquire()

    def check() -> None:
        assert theirs.acquire(timeout=1)
        theirs.release()
        if make is forks.rlock:  # the forking thread's own
            assert mine.acquire(timeout=1)
            mine.release()
            mine.release()

    in_child(check)
    assert not theirs.acquire(blocking=False)

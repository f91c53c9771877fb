"""Executables over the CPU runner: hand-written Programs run, share, recycle."""

from __future__ import annotations

import gc
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import device
from luminal.base import config
from luminal.program import memory_plan, verify
from luminal.program.launch_text import to_text
from tests.backends.cpu.hand_programs import ProgramBuilder, three_ops
from tests.backends.cpu.runtime.program_cases import (
    abc,
    doubled_weight,
    vectors,
    wanted,
)


def test_one_executable_serves_many_lengths() -> None:
    exe, _ = three_ops(None)
    for n in (10, 3000, 7, 100_000, 10, 64):
        x = abc(n)
        np.testing.assert_array_equal(exe(x)["y"], wanted(x))
    report = exe.report()
    assert report.dims == {"n": 64}
    assert [row.label for row in report.kernels] == ["mul", "add", "mul"]
    assert report.flops == 3 * 64
    assert [row.chunks for row in report.kernels] == [1, 1, 1]
    assert exe.report({"n": 640}).bytes == 3 * 12 * 640


def test_the_arena_grows_before_the_run_and_is_reported() -> None:
    exe, _ = three_ops(None)
    exe(abc(16))
    small = exe.memory_report()
    exe(abc(50_000))
    grown = exe.memory_report()
    assert small.arena_bytes == 2 * 64
    assert grown.arena_bytes >= 2 * 50_000 * 4
    assert grown.input_bytes == 3 * 50_000 * 4
    exe(abc(16))
    assert exe.memory_report().arena_bytes == grown.arena_bytes


def test_bits_do_not_depend_on_the_team(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)
    x = abc(10_000)
    exe, _ = three_ops(None)
    results = []
    for threads in (1, 2, 4):
        with config.override(LUMINAL_THREADS=threads):
            results += [exe(x)["y"] for _ in range(50)]
    assert all(np.array_equal(result, results[0]) for result in results)


def test_ten_thousand_runs_keep_memory() -> None:
    exe, _ = three_ops(1000)
    x = abc(1000)
    exe(x)
    gc.collect()
    before = _resident()
    for _ in range(10_000):
        result = exe(x)
    assert np.array_equal(result["y"], wanted(x))
    assert _resident() - before < 4 << 20


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# --- weights and States ---------------------------------------------------------------------------


def test_programs_share_what_they_derive_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    derive = device.derive
    monkeypatch.setattr(device, "derive", lambda *given: (runs.append(1), derive(*given)))
    parameter = lm.Parameter((64,), name="w")
    first, second = doubled_weight(parameter), doubled_weight(parameter, "Add")
    x, w = vectors(64, 2)
    parameter.set(w)
    np.testing.assert_array_equal(first(x=x)["y"], x * (w + w))
    np.testing.assert_array_equal(second(x=x)["y"], x + (w + w))
    assert len(runs) == 1
    parameter.set(2 * w)
    np.testing.assert_array_equal(second()["y"], x + (2 * w + 2 * w))
    np.testing.assert_array_equal(first()["y"], x * (2 * w + 2 * w))
    assert len(runs) == 2


# --- Loops ----------------------------------------------------------------------------------------


# --- threads and processes ------------------------------------------------------------------------


def test_four_threads_with_four_executables() -> None:
    n = 50_000
    inputs = [abc(n + k) for k in range(4)]
    exes = [three_ops(None)[0] for _ in inputs]

    def work(k: int) -> bool:
        return all(np.array_equal(exes[k](inputs[k])["y"], wanted(inputs[k])) for _ in range(30))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_threads_that_share_an_executable_take_turns() -> None:
    exe, _ = three_ops(None)
    inputs = [abc(n) for n in (10, 3000)]
    wrong = []

    def work(x: dict[str, np.ndarray]) -> None:
        wrong.extend(1 for _ in range(300) if not np.array_equal(exe(x)["y"], wanted(x)))

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "TEAM_GAIN", -math.inf)
    exe, _ = three_ops(None)
    x = abc(20_000)
    with config.override(LUMINAL_THREADS=2):
        exe(x)
        child = os.fork()
        if child == 0:
            ok = np.array_equal(exe(x)["y"], wanted(x))
            os._exit(0 if ok else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert np.array_equal(exe(x)["y"], wanted(x))


# --- texts ----------------------------------------------------------------------------------------


def test_a_program_prints() -> None:
    _, program = three_ops(16)
    assert to_text(program) == GOLDEN
    verify.verify(program)


GOLDEN = """\
program {
  b0: input a f32[16] row
  b1: input b f32[16] row
  b2: input c f32[16] row
  b3: arena f32[16] row
  b4: arena f32[16] row
  b5: output y f32[16] row
  run:
    k0[1](in b0, in b1, out b3)  # mul
    barrier
    k1[1](in b3, in b2, out b4)  # add
    barrier
    k0[1](in b4, in b0, out b5)  # mul
  output y = b5
}"""


def test_the_verifier_names_a_read_before_the_write() -> None:
    p = ProgramBuilder(16)
    x, t, y = p.buffer("input", "x"), p.buffer("arena"), p.buffer("output", "y")
    program = p.program([p.launch("Add", x, t, y)])
    with pytest.raises(lm.VerifyError, match=r"add: reads b1: arena .* before it is written"):
        verify.verify(program)


def test_the_placement_verifier_finds_an_overlap() -> None:
    _, program = three_ops(16)
    plan = memory_plan.plan(program, program.launches)
    good = memory_plan.place(plan, [64, 64])
    verify.verify_placement(program, program.launches, plan, good)
    bad = memory_plan.Placement((64, 64), (0, 0), 64)
    with pytest.raises(lm.VerifyError, match="share memory"):
        verify.verify_placement(program, program.launches, plan, bad)

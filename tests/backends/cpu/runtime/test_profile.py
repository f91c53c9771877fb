"""Profiles: the time of every launch of a run that computes what a plain run does."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import backend, launch_ir, peaks, target
from luminal.backends.cpu.device import CpuRunner
from luminal.base import config
from luminal.compiler.compile import lower_to_program
from luminal.runtime.roofline import Peaks
from tests.backends.cpu.small_programs import ADD, MIX, NOW, Program
from tests.long_share import mostly_long
from tests.machines import NARROWER


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_driver_times_every_kernel_and_orders_as_ever(threads: int) -> None:
    n = 64
    random = np.random.default_rng(0)
    program = Program(n, [random.integers(-9, 9, n) for _ in range(3)])
    program.loop(30).launch(MIX, (0, 0, 2), n, flags=0).launch(ADD, (2, 1, 0), n).end()
    program.launch(MIX, (0, 0, 2), n, launch_ir.BARRIER | launch_ir.SERIAL)
    program.loop(0).launch(ADD, (0, 0, 0), n).end()
    program.launch(MIX, (0, 0, 1), n, flags=0)
    prepared = program.prepare(threads)
    times = np.zeros(len(prepared.launches), np.int64)
    prepared.record["times"] = times.ctypes.data
    for _ in range(20):
        times[:] = 0
        expected = program.interpret()
        start = time.perf_counter_ns()
        prepared.run()
        taken = time.perf_counter_ns() - start
        for actual, wanted in zip(program.buffers, expected, strict=True):
            np.testing.assert_array_equal(actual, wanted)
        assert times.sum() <= taken
        assert [row for row, sum_ in enumerate(times) if sum_ > 0] == [1, 2, 4, 8]


@pytest.mark.parametrize("level", mostly_long(["native", NARROWER, "baseline"], 2))
def test_the_greatest_peaks_count(
    level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    facts = target.cap(target.detect(), level)
    found = peaks.measure(facts, 1)
    assert 1e8 < found.flops < 1e13
    assert 1e8 < found.memory < 1e12
    assert 0.5 * found.memory < found.cache < 1e13
    with config.override(LUMINAL_CACHE_DIR=tmp_path):
        _the_greatest_count(facts, found, monkeypatch)


def _the_greatest_count(
    facts: target.CpuTarget, first: Peaks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peaks, "measure", lambda *given: first)
    assert peaks.peaks(facts, 1) == first
    slow = Peaks(1.0, 1.0, 1.0, first.cache_bytes)
    monkeypatch.setattr(peaks, "measure", lambda *given: slow)  # while something else runs
    assert peaks.peaks(facts, 1) == first
    fast = Peaks(*(2 * rate for rate in first[:3]), first.cache_bytes)
    monkeypatch.setattr(peaks, "measure", lambda *given: fast)
    assert peaks.peaks(facts, 1) == fast
    monkeypatch.setattr(peaks, "measure", lambda *given: slow)
    assert peaks.peaks(facts, 1) == fast


def test_a_profile_moves_states_as_runs_do() -> None:
    cx = lm.Graph()
    x = cx.tensor((4,), name="x")
    count = lm.State((4,), init=np.zeros(4, np.float32), name="count")
    cx.assign(count, cx.read(count) + x)
    (x * 2).output("y")
    runner = CpuRunner(lower_to_program(cx.graph(), backend.current()), target.current())
    bound = runner.bind({}, ["x"], ["y"])
    out = np.zeros(4, np.float32)
    times = bound.profile([np.ones(4, np.float32)], [out], runs=3)
    assert times.shape == (3, len(bound.report().kernels))
    assert (times > 0).all()
    np.testing.assert_array_equal(count.numpy(), np.full(4, 3))
    np.testing.assert_array_equal(out, np.full(4, 2))


@pytest.mark.parametrize("threads", [2, 4])
def test_the_clock_is_read_before_any_member_works(threads: int) -> None:
    n = 64
    program = Program(n, [np.zeros(n, np.int64) for _ in range(3)])
    program.launch(NOW, (0, 1, 2), n)
    prepared = program.prepare(threads)
    times = np.zeros(len(prepared.launches), np.int64)
    prepared.record["times"] = times.ctypes.data
    for _ in range(300):
        times[:] = 0
        prepared.run()
        done = program.buffers[2]
        assert times.sum() >= done.max() - done.min()


def test_bytes_of_a_part_are_those_of_the_part() -> None:
    def moved(function: Callable[[lm.Tensor], lm.Tensor]) -> int:
        with lm.recording(lm.Graph()) as cx:
            function(cx.tensor((512, 1024), name="x")).output("y")
        return lm.compile(cx).report().bytes

    assert moved(lambda x: x[:, 5:6] * 2) == 4 * (512 + 512)
    assert moved(lambda x: x[::64, ::64].exp()) == 4 * (8 * 16 + 8 * 16)
    assert moved(lambda x: x[100:110].sum()) == 4 * (10 * 1024 + 1)
    assert moved(lambda x: x * 2 + x[:1]) == 4 * 2 * 512 * 1024  # all of it is read
    assert moved(lambda x: x[:4] - x[-4:]) == 4 * (8 * 1024 + 4 * 1024)
    assert moved(lambda x: x[7].softmax(-1)) == 4 * 2 * 1024

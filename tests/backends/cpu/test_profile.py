"""Profiles: the time of every launch of a run that computes what a plain run does."""

from __future__ import annotations

import time

import numpy as np
import pytest

import luminal as lm
from luminal.backends.cpu import backend, launch_ir, peaks, target
from luminal.backends.cpu.device import CpuRunner
from luminal.compiler import lower_to_program
from tests.backends.cpu.small_programs import ADD, MIX, Program


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


@pytest.mark.parametrize("level", ["native", "avx2", "baseline"])
def test_peaks_are_measured_once(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = target.cap(target.detect(), level)
    found = peaks.measure(facts, 1)
    assert 1e8 < found.flops < 1e13
    assert 1e8 < found.memory < 1e12
    assert 0.5 * found.memory < found.cache < 1e13
    first = peaks.peaks(facts, 1)
    peaks.peaks.cache_clear()
    monkeypatch.delattr(peaks, "measure")  # another process finds it in the cache
    assert peaks.peaks(facts, 1) == first


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

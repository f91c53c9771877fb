"""Profiles: the time of every launch of a run that computes what a plain run does."""

from __future__ import annotations

import time

import numpy as np
import pytest

from luminal.backends.cpu import launch_ir
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

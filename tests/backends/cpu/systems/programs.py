"""A few programs for a system that is installed."""

from __future__ import annotations

import numpy as np

from luminal.base.dtypes import float32
from tests.backends import op_table
from tests.backends.cpu import team_check
from tests.backends.cpu.small_programs import chain, random_program
from tests.fuzz.cpu_run import compiled


def check() -> None:
    """Teams run programs, one of them timed, and a part of the op table on the system installed."""
    for seed in range(6):
        for threads in (2, 4):
            team_check.check(random_program(seed), threads, runs=3)
    timed = chain(0).prepare(2)
    times = np.zeros(len(timed.launches), np.int64)
    timed.record["times"] = times.ctypes.data
    timed.run()
    assert 0 < times.sum() < 60e9
    op_table.check(lambda graph: compiled(graph)[0], float32, (op_table.leaves, op_table.loops))

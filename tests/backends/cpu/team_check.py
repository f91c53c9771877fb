"""A launch list run by a team, compared with the slow interpreter."""

from __future__ import annotations

import numpy as np

from tests.backends.cpu.small_programs import (
    Program,
)


def check(program: Program, threads: int, runs: int = 1) -> None:
    for _ in range(runs):
        expected = program.interpret()
        program.run(threads)
        for actual, wanted in zip(program.buffers, expected, strict=True):
            np.testing.assert_array_equal(actual, wanted)

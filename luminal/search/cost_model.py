"""What a program should cost: orders candidates before anything is timed, and bounds them.

A launch takes the longer of its arithmetic and its memory traffic, and a constant. The figures are
rough facts of vector CPUs; only their ratios matter here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from luminal.program.launch_list import Launch, LoopLaunch, Program
from luminal.target import Target

LAUNCH_SECONDS = 1e-6
CYCLES_PER_SECOND = 3e9
BYTES_PER_SECOND = 20e9
CACHED_BYTES_PER_SECOND = 60e9  # of launches whose operands fit into half the last cache
MOST_FLOPS = 4.0  # times those of the fast program: beyond, a candidate is not built
MOST_LINES = 4000  # of tile IR in one kernel: LLVM would take too long


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted seconds of a run, and its arithmetic operations."""

    seconds: float
    flops: float


def cost(program: Program, dims: Mapping[str, int], target: Target) -> Cost:
    """The predicted cost of one run (the prologue is no part of it)."""
    speed = CYCLES_PER_SECOND * target.vector_lanes(4) * target.cores

    def add(launches: tuple[Launch, ...], trips: int) -> tuple[float, float]:
        seconds = flops = 0.0
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                inner = add(launch.body, trips * launch.trips.evaluate(dims))
                seconds, flops = seconds + inner[0], flops + inner[1]
                continue
            work, moved = launch.flops.evaluate(dims), launch.bytes.evaluate(dims)
            cached = moved < target.l3_bytes / 2
            pace = CACHED_BYTES_PER_SECOND if cached else BYTES_PER_SECOND
            seconds += trips * (max(work / speed, moved / pace) + LAUNCH_SECONDS)
            flops += trips * work
        return seconds, flops

    return Cost(*add(program.launches, 1))

"""What a program should cost: orders candidates before anything is timed, and bounds them.

A launch takes the longer of its arithmetic and its memory traffic, and a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from luminal.costs import Costs
from luminal.program.launch_list import Launch, LoopLaunch, Program

MOST_FLOPS = 4.0  # times those of the fast program: beyond, a candidate is not built
MOST_LINES = 4000  # of tile IR in one kernel: compiling it would take too long


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted seconds of a run, and its arithmetic operations."""

    seconds: float
    flops: float


def cost(program: Program, dims: Mapping[str, int], costs: Costs) -> Cost:
    """The predicted cost of one run (the prologue is no part of it)."""

    def add(launches: tuple[Launch, ...], trips: int) -> tuple[float, float]:
        seconds = flops = 0.0
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                inner = add(launch.body, trips * launch.trips.evaluate(dims))
                seconds, flops = seconds + inner[0], flops + inner[1]
                continue
            work, moved = launch.flops.evaluate(dims), launch.bytes.evaluate(dims)
            computing = work / costs.contraction_flops
            taken = max(computing, moved / costs.moving(moved)) / costs.units
            seconds += trips * (taken + costs.launch)
            flops += trips * work
        return seconds, flops

    return Cost(*add(program.launches, 1))

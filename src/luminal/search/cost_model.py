"""What a program should cost: orders candidates before anything is timed, and bounds them.

A launch takes what its backend says of its kernel, and a constant.
"""

from __future__ import annotations

from collections.abc import Mapping

from luminal.backends.backend import Backend
from luminal.base.costs import LINK
from luminal.base.records import dataclass
from luminal.kernel.tile_ir import Kernel
from luminal.kernel.tile_text import to_text
from luminal.program.launch_list import (
    CollectiveLaunch,
    KernelLaunch,
    Launch,
    LoopLaunch,
    Program,
    kernel_launches,
)

# Of 523 random programs this rules out 220, and none of the 121 within 5% of the fastest.
PREDICTED_SLOW = 2.5
"""Times the best program's predicted cost: not built. Of 523 programs of 27 subjects that rules out
two in five, and none of the 121 that were within 5% of the fastest (by 2, one of them).
"""
MOST_FLOPS = 4.0  # times those of the fast program: beyond, a candidate is not built
MOST_LINES = 4000  # of tile IR in one kernel: compiling it would take too long


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted seconds of a run, and its arithmetic operations."""

    seconds: float
    flops: float


class CostModel:
    """Predicts programs at some values of their dims; a kernel is counted once."""

    def __init__(self, dims: Mapping[str, int], backend: Backend) -> None:
        self.dims, self.backend = dims, backend
        self._known: dict[tuple[str, tuple[int, ...], float, float], float] = {}

    def cost(self, program: Program) -> Cost:
        """The predicted cost of one run (the prologue is no part of it)."""
        return Cost(*self._sum(program, program.launches, 1))

    def kernel(self, program: Program, number: int) -> float:
        """The predicted seconds of one run of a kernel, at all its launch sites together."""
        sites = (site for site in kernel_launches(program.launches) if site.kernel == number)
        return sum(self._seconds(program.kernels[number], launch) for launch in sites)

    def _sum(
        self, program: Program, launches: tuple[Launch, ...], trips: int
    ) -> tuple[float, float]:
        """Seconds and operations of some launches that run so many times."""
        seconds = flops = 0.0
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                times = trips * launch.trips.evaluate(self.dims)
                inner = self._sum(program, launch.body, times)
                seconds, flops = seconds + inner[0], flops + inner[1]
                continue
            if isinstance(launch, CollectiveLaunch):
                seconds += trips * self.collective(launch)
                continue
            taken = self._seconds(program.kernels[launch.kernel], launch)
            seconds += trips * (taken + self.backend.costs.launch)
            flops += trips * launch.flops.evaluate(self.dims)
        return seconds, flops

    def collective(self, launch: CollectiveLaunch) -> float:
        """The seconds of a collective on the usual link: alike for all candidates of a graph."""
        if launch.phase == "wait":
            return 0.0
        return LINK.seconds(float(launch.bytes.evaluate(self.dims)))

    def _seconds(self, kernel: Kernel, launch: KernelLaunch) -> float:
        """The seconds of one launch, but for what every one costs."""
        values = tuple(int(value.evaluate(self.dims)) for value in launch.params)
        flops, size = (float(e.evaluate(self.dims)) for e in (launch.flops, launch.bytes))
        key = to_text(kernel), values, flops, size
        if key not in self._known:
            params = dict(zip((p.name for p in kernel.params), values, strict=True))
            self._known[key] = self.backend.seconds(kernel, params, flops, size)
        return self._known[key]


def cost(program: Program, dims: Mapping[str, int], backend: Backend) -> Cost:
    """The predicted cost of one program."""
    return CostModel(dims, backend).cost(program)

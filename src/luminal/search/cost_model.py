"""What a program should cost: orders candidates before anything is timed, and bounds them.

A launch takes what its backend says of its kernel, and a constant. How far that was off where a
clock was asked is learned (`learned.py`), and orders candidates; what is ruled out is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from luminal.backends.backend import Backend, Prediction
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
from luminal.search.database import Sample
from luminal.search.learned import Learned

# Of 523 random programs this rules out 220, and none of the 121 within 5% of the fastest.
PREDICTED_SLOW = 2.5
"""Times the best program's predicted cost: not built. Of 523 programs of 27 subjects that rules out
two in five, and none of the 121 that were within 5% of the fastest (by 2, one of them).
"""
MOST_FLOPS = 4.0  # times those of the fast program: beyond, a candidate is not built
MOST_LINES = 4000  # of tile IR in one kernel: compiling it would take too long


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted seconds of a run, and its arithmetic operations. `expected`: the seconds, by what
    was learned of how far such predictions are off.
    """

    seconds: float
    flops: float
    expected: float


class CostModel:
    """Predicts programs at some values of their dims; a kernel is counted once. What `learned`
    knows corrects the expected seconds, and none of the others.
    """

    def __init__(
        self, dims: Mapping[str, int], backend: Backend, learned: Learned | None = None
    ) -> None:
        self.dims, self.backend, self.learned = dims, backend, learned or Learned()
        self._known: dict[tuple[str, tuple[int, ...], float, float], Prediction] = {}

    def cost(self, program: Program) -> Cost:
        """The predicted cost of one run (the prologue is no part of it)."""
        return Cost(*self._sum(program, program.launches, 1))

    def kernel(self, program: Program, number: int) -> float:
        """The predicted seconds of one run of a kernel, at all its launch sites together."""
        return sum(site.seconds for site in self._at_sites(program, number))

    def launch(self, program: Program, number: int) -> Prediction:
        """The mean seconds predicted for a launch of a kernel, and what is counted where it should
        take longest.
        """
        sites = self._at_sites(program, number)
        longest = max(sites, key=lambda site: site.seconds)
        return Prediction(sum(site.seconds for site in sites) / len(sites), longest.features)

    def sample(self, program: Program, number: int, kernel: str, seconds: float) -> Sample:
        """What a kernel took in a run, a launch of it, beside what was predicted and counted;
        `kernel` names what it computes.
        """
        sites = len(self._at_sites(program, number))
        return Sample(kernel, seconds / sites, *self.launch(program, number))

    def _at_sites(self, program: Program, number: int) -> list[Prediction]:
        sites = (site for site in kernel_launches(program.launches) if site.kernel == number)
        return [self._prediction(program.kernels[number], launch) for launch in sites]

    def _sum(
        self, program: Program, launches: tuple[Launch, ...], trips: int
    ) -> tuple[float, float, float]:
        """Seconds, operations and expected seconds of some launches that run so many times."""
        seconds = flops = expected = 0.0
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                times = trips * launch.trips.evaluate(self.dims)
                inner = self._sum(program, launch.body, times)
                seconds, flops = seconds + inner[0], flops + inner[1]
                expected += inner[2]
                continue
            if isinstance(launch, CollectiveLaunch):
                seconds += trips * self.collective(launch)
                expected += trips * self.collective(launch)
                continue
            prediction = self._prediction(program.kernels[launch.kernel], launch)
            per_launch = self.backend.costs.launch
            seconds += trips * (prediction.seconds + per_launch)
            expected += trips * (self.learned.expected(prediction) + per_launch)
            flops += trips * launch.flops.evaluate(self.dims)
        return seconds, flops, expected

    def collective(self, launch: CollectiveLaunch) -> float:
        """The seconds of a collective on the usual link: alike for all candidates of a graph."""
        if launch.phase == "wait":
            return 0.0
        return LINK.seconds(float(launch.bytes.evaluate(self.dims)))

    def _prediction(self, kernel: Kernel, launch: KernelLaunch) -> Prediction:
        """What is predicted of one launch, but for what every one costs."""
        values = tuple(int(value.evaluate(self.dims)) for value in launch.params)
        flops, size = (float(e.evaluate(self.dims)) for e in (launch.flops, launch.bytes))
        key = to_text(kernel), values, flops, size
        if key not in self._known:
            params = dict(zip((p.name for p in kernel.params), values, strict=True))
            self._known[key] = self.backend.predict(kernel, params, flops, size)
        return self._known[key]


def cost(program: Program, dims: Mapping[str, int], backend: Backend) -> Cost:
    """The predicted cost of one program."""
    return CostModel(dims, backend).cost(program)

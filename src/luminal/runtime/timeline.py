"""What a step of a compiled program takes, predicted: its launches as they stand, side by side.

Kernels follow one another, as long as they were measured to take. A collective begins at its start,
once those before it are through the link, and a wait lasts until it is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from luminal.base.costs import Link
from luminal.base.records import dataclass
from luminal.distribute.price import collective_seconds
from luminal.program.launch_list import CollectiveLaunch, KernelLaunch, Launch, LoopLaunch
from luminal.runtime.report import KernelRow
from luminal.shape.evaluation import evaluate


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of a step, of its kernels alone and of its collectives alone."""

    seconds: float
    kernels: float
    collectives: float

    @property
    def hidden(self) -> float:
        """The share of the shorter of kernels and collectives that the longer one hides."""
        shorter = min(self.kernels, self.collectives)
        return (self.kernels + self.collectives - self.seconds) / shorter if shorter else 1.0


def predicted(
    launches: Sequence[Launch],
    rows: Sequence[KernelRow],
    dims: Mapping[str, int],
    links: Mapping[str, Link],
) -> Step:
    """The step of a launch list. `rows` are its sites as a profile without other ranks has them;
    `links` by mesh axis.
    """
    line = _Line(dims, links)
    line.run(launches, iter(rows), 1)
    return Step(max(line.now, *line.free.values(), 0.0), line.kernels, line.collectives)


class _Line:
    """The time: `now` of the rank, and when the link of each axis is `free`."""

    def __init__(self, dims: Mapping[str, int], links: Mapping[str, Link]) -> None:
        self._dims, self._links = dims, links
        self._done: dict[int, float] = {}  # by ticket
        self.free = dict.fromkeys(links, 0.0)
        self.now = self.kernels = self.collectives = 0.0

    def run(self, launches: Sequence[Launch], rows: Iterator[KernelRow], outer: int) -> None:
        """Passes the time of a list, whose rows have the times of `outer` trips."""
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                trips = evaluate(launch.trips, self._dims)
                body = [next(rows) for _ in range(_sites(launch.body))]
                for _ in range(trips):
                    self.run(launch.body, iter(body), outer * trips)
                continue
            row = next(rows)
            if isinstance(launch, KernelLaunch):
                seconds = (row.seconds or 0.0) / outer
                self.now += seconds
                self.kernels += seconds
            else:
                self._collective(launch)

    def _collective(self, launch: CollectiveLaunch) -> None:
        axis = launch.attrs.axis
        if launch.phase != "wait":
            size = launch.dtype.size * sum(
                evaluate(elements, self._dims) for elements in launch.sizes[: launch.members]
            )
            attrs = launch.attrs
            seconds = collective_seconds(attrs.kind, size, attrs.ranks, self._links[axis])
            self.collectives += seconds
            self.free[axis] = max(self.now, self.free[axis]) + seconds
            self._done[launch.ticket] = self.free[axis]
        if launch.phase != "start":
            self.now = max(self.now, self._done.pop(launch.ticket))


def _sites(launches: Sequence[Launch]) -> int:
    return sum(_sites(launch.body) if isinstance(launch, LoopLaunch) else 1 for launch in launches)

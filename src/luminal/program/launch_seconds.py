"""What launches take, where a program is compiled: kernels by what work costs on the machine.

No link is known then, and all ranks have to agree on one list. So collectives are taken to last
SHARE of a program's kernels, each by its bytes: a link on which it matters where they stand. A far
faster one is hidden wherever that is, and none hides a far slower one.
"""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.costs import Costs
from luminal.program.launch_list import CollectiveLaunch, KernelLaunch, Launch, LoopLaunch
from luminal.shape.expression import Expression

SHARE = 0.5


class Seconds:
    """The seconds of launches of a program: of kernels by `costs`, of starts by bytes."""

    def __init__(self, launches: Sequence[Launch], costs: Costs) -> None:
        self._costs = costs
        kernels, sent = self._sums(launches)
        self._byte = SHARE * kernels / max(sent, 1.0)

    def of(self, launch: Launch) -> float:
        """What a launch takes: of a collective the link, of a wait nothing; a Loop's kernels."""
        kernels, sent = self._sums((launch,))
        return kernels if isinstance(launch, LoopLaunch) else kernels + sent * self._byte

    def _sums(self, launches: Sequence[Launch]) -> tuple[float, float]:
        """The seconds of the kernels of launches, and the bytes that their collectives send."""
        kernels = sent = 0.0
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                trips, inner = _number(launch.trips), self._sums(launch.body)
                kernels, sent = kernels + trips * inner[0], sent + trips * inner[1]
            elif isinstance(launch, KernelLaunch):
                flops, size = _number(launch.flops), _number(launch.bytes)
                kernels += self._costs.launch + self._costs.seconds(flops, size)
            elif isinstance(launch, CollectiveLaunch):
                sent += _number(launch.bytes)
        return kernels, sent


def _number(count: Expression) -> float:
    """A count with dims as large as they may be; as small where nothing bounds them."""
    low, high = count.interval.lo, count.interval.hi
    return float(high if high is not None else low or 0)

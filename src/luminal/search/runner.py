"""The process that runs candidates, as the search uses it: programs by number, times, comparisons.

One process at a time, killed when a program hangs and started anew with the next request.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from luminal.program.launch_list import Program
from luminal.runtime.arrays import Array
from luminal.search.distance import Distance
from luminal.search.messages import pack
from luminal.search.operands import SharedFile
from luminal.search.process import START_SECONDS, Died, Lost, Process

MOST_LOADS = 2000  # each leaves some kilobytes of linked code behind
TIME_SECONDS = 2.0  # most seconds of one `time` call, beyond the rounds asked for
PROFILE_RUNS = 5


# Speed drifts by a third within a second on shared machines, far more than programs differ. A
# pair's ratio has the drift taken out, and a median of ratios the outliers.
class Pairs(NamedTuple):
    """Seconds of a run of two programs that took turns: `first[k]` stands beside `second[k]`.

    A machine's speed drifts more than programs differ; neighbours in time share its speed.
    """

    first: Sequence[float]
    second: Sequence[float]

    def wins(self, share: float) -> bool:
        """Is the first program faster: by `share` and beyond the spread in the median pair, and
        also in its quietest round?
        """
        low, middle, high = np.percentile(np.divide(self.second, self.first), [25, 50, 75])
        # Ratios spread by factors: what is 10, 16 and 45 times as fast is surely faster.
        certain = middle > math.sqrt(high / low) and middle > 1 + share
        return bool(certain and min(self.first) < min(self.second))


class Runner:
    """Times and compares programs. Every method raises Lost or Refused as `Process` does."""

    def __init__(self, backend: str, shared: SharedFile, run_seconds: float) -> None:
        self._backend = backend
        self._shared = shared
        self._run_seconds = run_seconds
        self._process: Process | None = None
        self._loaded: set[int] = set()
        self._loads: int  # of this process
        self._packed: dict[int, bytes] = {}
        self._count = 0

    def add(self, program: Program) -> int:
        """A number for a program. Raises TypeError or PicklingError for one that cannot travel."""
        self._count += 1
        self._packed[self._count] = pack(("load", (self._count, program)))
        return self._count

    def drop(self, number: int) -> None:
        """Forgets the program of a number."""
        self._packed.pop(number, None)
        if number in self._loaded and self._process is not None:
            self._loaded.discard(number)
            with suppress(Lost):  # then it is forgotten as well
                self._process.call("drop", number, seconds=self._run_seconds)

    def seconds(self, number: int, rounds: int) -> float:
        """The median time of a run, once it is warm."""
        self._times((number,), rounds)
        (samples,) = self._times((number,), rounds)
        return statistics.median(samples)

    def pairs(self, first: int, second: int, rounds: int) -> Pairs:
        """Times of two programs that take turns."""
        return Pairs(*self._times((first, second), rounds))

    def _times(self, numbers: Sequence[int], rounds: int) -> list[list[float]]:
        limit = (rounds + 3) * len(numbers) * self._run_seconds
        request = "time", list(numbers), rounds, TIME_SECONDS
        times: list[list[float]] = self._asked(
            numbers, lambda process: process.call(*request, seconds=limit)
        )
        return times

    def profile(self, number: int, slow: float = math.inf) -> list[float]:
        """Seconds of each launch site, the median of some runs; one run if it takes over `slow`."""
        limit = (PROFILE_RUNS + 2) * self._run_seconds
        request = "profile", number, PROFILE_RUNS, slow
        runs = self._asked((number,), lambda process: process.call(*request, seconds=limit))
        return [statistics.median(site) for site in zip(*runs, strict=True)]

    def distance(self, number: int, other: int) -> dict[str, Distance]:
        """The distance of two programs' results, by the name of the result."""
        limit = 4 * self._run_seconds + START_SECONDS
        distances: dict[str, Distance] = self._asked(
            (number, other),
            lambda process: process.call("distance", number, other, seconds=limit),
        )
        return distances

    def elements(self, number: int, positions: dict[str, list[Array]]) -> dict[str, Array]:
        """Elements of the results of one run from the States' first values."""

        def run_and_read(process: Process) -> Any:
            process.call("run_once", number, seconds=2 * self._run_seconds)
            return process.call("elements", number, positions, seconds=self._run_seconds)

        values: dict[str, Array] = self._asked((number,), run_and_read)
        return values

    def _asked(self, numbers: Sequence[int], ask: Callable[[Process], Any]) -> Any:
        """What the process with these programs answers; one that died may try again.

        It may have been killed for other reasons. If a program did it, it does so again.
        """
        try:
            return ask(self._ready(numbers))
        except Died:
            return ask(self._ready(numbers))

    def close(self) -> None:
        """Ends the process; the next request starts another."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _ready(self, numbers: Sequence[int]) -> Process:
        """The process with these programs loaded."""
        process = self._process
        if process is None or process.is_dead or self._loads > MOST_LOADS:
            self.close()
            process = self._process = Process(self._backend, self._shared.fileno())
            self._loaded.clear()
            self._loads = 0
            process.call("open", self._shared.operands, seconds=START_SECONDS)
        for number in numbers:
            if number not in self._loaded:
                process.start(self._packed[number])
                process.answer(START_SECONDS)
                self._loaded.add(number)
                self._loads += 1
        return process

"""What the members of a team noted in a run with clocks: bars, as the driver writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from luminal.backends.cpu.launch_ir import KERNEL
from luminal.runtime.clocks import Bar, Clocked

WORDS = 4  # of a bar: the row of its launch, chunks, start and end in nanoseconds
MOST = 1 << 16  # bars of a member that are kept of one run


class Bars:
    """Memory for the bars of a run: of each member a count, and room for so many."""

    def __init__(self, members: int, launches: int) -> None:
        self.room = min(launches, MOST)
        self.words = np.zeros((members, 1 + self.room * WORDS), np.int64)

    def given_to(self, record: NDArray[Any]) -> NDArray[Any]:
        """The run record with a place for them."""
        record["bars"], record["bar_room"] = self.words.ctypes.data, self.room
        return record

    def read(self, launches: NDArray[Any], called: int, returned: int, ended: int) -> Clocked:
        """The bars by launch site, in the order they began; the call of native code lies between
        two moments of `perf_counter_ns`.
        """
        noted = [
            np.column_stack((np.full(count, member), words[: count * WORDS].reshape(-1, WORDS)))
            for member, (count, words) in enumerate(
                (min(int(row[0]), self.room), row[1:]) for row in self.words
            )
        ]
        rows = np.concatenate(noted)
        rows = rows[np.argsort(rows[:, 3], kind="stable")]
        if len(rows):
            # The driver's clock need not begin where Python's does: then a run ends as its call.
            first, last = rows[0, 3], rows[:, 4].max()
            if not called <= first <= last <= returned:
                rows[:, 3:] += returned - last
        sites = np.cumsum(launches["kind"] == KERNEL) - 1
        done = np.zeros(len(launches), np.int64)
        bars = []
        for member, launch, chunks, start, end in rows.tolist():
            # Each trip of a Loop begins when the one before is done, so chunks say which it is.
            trip = int(done[launch] // max(launches["grid"][launch], 1))
            done[launch] += chunks
            bars.append(Bar(f"thread {member}", int(sites[launch]), trip, start, end, chunks))
        kept = all(int(row[0]) <= self.room for row in self.words)
        return Clocked(called, returned, ended, tuple(bars), kept)

"""The launch sites of a launch list, and what each of them does at given dims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from luminal.base.lines import Recorded
from luminal.base.origins import described, lines_of
from luminal.base.records import dataclass
from luminal.program.launch_list import (
    CollectiveLaunch,
    KernelLaunch,
    Launch,
    LoopLaunch,
    Program,
)
from luminal.program.quantities import Quantities
from luminal.runtime.report import COLLECTIVE, KernelRow
from luminal.shape.expression import Expression, const, sum_of


class Work(NamedTuple):
    """What each launch site does, all its trips; `chunks` of one launch."""

    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]
    chunks: NDArray[np.float64]
    trips: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Site:
    """One launch site: numbers in Quantities of what is asked of it."""

    label: str
    kernel: int
    origins: tuple[Recorded, ...]
    trips: int
    chunks: int
    flops: int  # of all trips, as bytes
    bytes: int
    held: int  # bytes of all buffers that some trip touches


class Sites:
    """The launches of a list in its order, one in a Loop with all its trips."""

    def __init__(
        self, program: Program, launches: tuple[Launch, ...], quantities: Quantities
    ) -> None:
        add = quantities.add
        self._sites = [
            _Site(*_described(launch), add(trips), *map(add, _work(program, launch, trips)))
            for launch, trips in _counted(launches, const(1))
        ]
        self._work = [[s.flops, s.bytes, s.chunks, s.trips] for s in self._sites]

    def __len__(self) -> int:
        return len(self._sites)

    def named(self, site: int) -> str:
        """The words for a launch in an error."""
        row = self._sites[site]
        words = described(row.origins)
        origin = f", of {words}" if words else ""
        return f"launch {site + 1} of {len(self)}, {row.label!r} (kernel {row.kernel}){origin}"

    def work(self, values: Sequence[int]) -> Work:
        """The work of every site where the quantities have these values."""
        # As arrays: a program may have hundreds of sites, and what a team of threads would save is
        # asked before a run.
        numbers = np.array(self._work, np.int64).reshape(-1, len(Work._fields)).T
        return Work(*np.array(values, np.float64)[numbers])

    def report(self, values: Sequence[int]) -> tuple[KernelRow, ...]:
        """A row for each site."""
        return tuple(
            KernelRow(
                site.label,
                site.kernel,
                values[site.trips],
                values[site.chunks],
                values[site.flops],
                values[site.bytes],
                origin=described(site.origins),
                lines=lines_of(site.origins),
                distinct=min(values[site.bytes], values[site.held]),
            )
            for site in self._sites
        )


def _described(launch: KernelLaunch | CollectiveLaunch) -> tuple[str, int, tuple[Recorded, ...]]:
    """The label of a launch, its kernel, and where what it computes comes from."""
    if isinstance(launch, CollectiveLaunch):
        return launch.title, COLLECTIVE, ()
    return launch.label, launch.kernel, launch.origins


def _work(
    program: Program, launch: KernelLaunch | CollectiveLaunch, trips: Expression
) -> tuple[Expression, Expression, Expression, Expression]:
    """The chunks of a launch, flops and bytes of all its trips, the bytes of all its buffers."""
    touched = {buffer for buffer, _ in program.accesses(launch)}
    held = sum_of(buffer.bytes for buffer in program.buffers if buffer.id in touched)
    if isinstance(launch, CollectiveLaunch):
        return const(1), const(0), launch.bytes * trips, held
    return launch.chunks, launch.flops * trips, launch.bytes * trips, held


def _counted(
    launches: tuple[Launch, ...], trips: Expression
) -> Iterator[tuple[KernelLaunch | CollectiveLaunch, Expression]]:
    """The launches of a list, each with the number of times that a run comes by."""
    for launch in launches:
        if isinstance(launch, LoopLaunch):
            yield from _counted(launch.body, trips * launch.trips)
        else:
            yield launch, trips

"""A launch list with the numbers of one binding of dims, and its walk over a Driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from luminal.memory.arrays import Array
from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Operand
from luminal.program.quantities import Quantities
from luminal.runtime.driver import Code, DevicePointer, Driver, Mark, integers_of, scratch_of

WORD = 8  # bytes of an integer that a kernel reads

Table: TypeAlias = Mapping[int, DevicePointer]
"""Where the entries of a Program's table lie."""


class BoundOperand(NamedTuple):
    """An Operand with the numbers that its Expressions have in this binding."""

    entry: int
    depth: int
    offset: int
    modulus: int
    stride: int
    start: int

    def at(self, table: Table, trips: Sequence[int]) -> DevicePointer:
        """The place of the operand in these trips of the Loops around it, the outermost first."""
        # One rule serves weights of a layer (an entry for each trip), values that take turns
        # (modulus 2) and slices of one tensor (a stride).
        trip = trips[self.depth - 1] if self.depth else 0
        block, offset = table[self.entry + (trip + self.offset) % self.modulus]
        return DevicePointer(block, offset + self.start + trip * self.stride)


class BoundLaunch(NamedTuple):
    """A KernelLaunch with its numbers; `site` is its position among the list's launches,
    `integers` the byte of the list's integers at which its own begin.
    """

    site: int
    code: Code
    workers: int
    operands: tuple[BoundOperand, ...]
    integers: int | None
    has_scratch: bool


class BoundLoop(NamedTuple):
    """A LoopLaunch with the number of its trips and its bound body."""

    trips: int
    body: Bound


Bound: TypeAlias = "tuple[BoundLaunch | BoundLoop, ...]"


class _Site(NamedTuple):
    """What a KernelLaunch has whatever the dims are. A grid is as large as any dims need, and
    kernels find in memory how many chunks there are.
    """

    site: int
    code: Code
    workers: int
    integers: int | None
    scratch: int  # the number of the quantity that is a worker's bytes


class DeviceLaunches:
    """A launch list, for any binding of dims. `code[k]` is kernel k's on the driver's device."""

    def __init__(
        self,
        launches: tuple[Launch, ...],
        code: Sequence[Code],
        driver: Driver,
        quantities: Quantities,
    ) -> None:
        self._launches = launches
        self._code = code
        self._workers = [*map(driver.workers_of, code)]
        self._number = quantities.add
        self._sites: list[_Site] = []
        self._rows: list[int] = []  # the quantities that kernels read, launch by launch
        # All Expressions are numbered here, before the first binding, so that a binding evaluates
        # them in one pass.
        self._note(launches)

    def _note(self, launches: tuple[Launch, ...]) -> None:
        """Adds all that is asked of a binding to the quantities."""
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                self._number(launch.trips)
                self._note(launch.body)
                continue
            self._sites.append(self._site(launch))
            for operand in launch.operands:
                for expression in (operand.offset, operand.stride, operand.start):
                    self._number(expression)

    def _site(self, launch: KernelLaunch) -> _Site:
        code, most = self._code[launch.kernel], launch.chunks.interval.hi
        row = [*map(self._number, integers_of(code, launch.params, launch.chunks))]
        start = WORD * len(self._rows) if row else None
        self._rows += row
        workers = self._workers[launch.kernel]
        return _Site(
            len(self._sites),
            code,
            workers if most is None else max(1, min(most, workers)),
            start,
            self._number(scratch_of(code, launch.params)),
        )

    @property
    def integer_bytes(self) -> int:
        """The bytes of `integers`."""
        return WORD * len(self._rows)

    def integers(self, values: Sequence[int]) -> Array:
        """All that the kernels read of a binding where the quantities have these values."""
        return np.array([values[number] for number in self._rows], np.int64)

    def scratch_bytes(self, values: Sequence[int]) -> int:
        """The bytes of the working memory that the launches take turns with."""
        # The largest and not the sum: the queue runs launches one after the other.
        return max((site.workers * values[site.scratch] for site in self._sites), default=0)

    def bind(self, values: Sequence[int]) -> Bound:
        """The list where the quantities have these values."""
        return self._bound(self._launches, values, iter(self._sites))

    def _bound(
        self, launches: tuple[Launch, ...], values: Sequence[int], sites: Iterator[_Site]
    ) -> Bound:
        bound_launches: list[BoundLaunch | BoundLoop] = []
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                trips = values[self._number(launch.trips)]
                bound_launches.append(BoundLoop(trips, self._bound(launch.body, values, sites)))
            else:
                bound_launches.append(self._bound_launch(launch, values, next(sites)))
        return tuple(bound_launches)

    def _bound_launch(self, launch: KernelLaunch, values: Sequence[int], at: _Site) -> BoundLaunch:
        operands = tuple(self._bound_operand(operand, values) for operand in launch.operands)
        has_scratch = values[at.scratch] > 0
        return BoundLaunch(at.site, at.code, at.workers, operands, at.integers, has_scratch)

    def _bound_operand(self, operand: Operand, values: Sequence[int]) -> BoundOperand:
        offset, stride, start = (
            values[self._number(expression)]
            for expression in (operand.offset, operand.stride, operand.start)
        )
        return BoundOperand(operand.entry, operand.depth, offset, operand.modulus, stride, start)


def enqueue(
    driver: Driver,
    bound: Bound,
    table: Table,
    integers: DevicePointer,
    scratch: DevicePointer,
    marks: list[tuple[int, Mark]] | None = None,
    trips: tuple[int, ...] = (),
) -> None:
    """Queues all launches; `marks` takes a mark after each, with its site.

    `integers` and `scratch` have the bytes that DeviceLaunches says.
    """
    # The host walks the list and the device runs it in order: a queue needs no barriers, so the
    # flags that a team of threads obeys mean nothing here.
    for launch in bound:
        if isinstance(launch, BoundLoop):
            for trip in range(launch.trips):
                enqueue(driver, launch.body, table, integers, scratch, marks, (*trips, trip))
            continue
        own = launch.integers
        driver.enqueue(
            launch.code,
            launch.workers,
            [operand.at(table, trips) for operand in launch.operands],
            None if own is None else DevicePointer(integers.block, integers.offset + own),
            scratch if launch.has_scratch else None,
        )
        if marks is not None:
            marks.append((launch.site, driver.mark()))

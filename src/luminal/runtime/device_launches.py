"""A launch list with the numbers of one binding of dims, and its walk over a Driver."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from luminal.program.launch_list import KernelLaunch, Launch, LoopLaunch, Operand
from luminal.program.quantities import Quantities
from luminal.runtime.driver import Code, DevicePointer, Driver, Mark

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
    """A KernelLaunch with its numbers; `site` is its position among the list's launches."""

    site: int
    code: Code
    chunks: int
    workers: int
    operands: tuple[BoundOperand, ...]
    params: tuple[int, ...]
    scratch_bytes: int  # of all its workers


class BoundLoop(NamedTuple):
    """A LoopLaunch with the number of its trips and its bound body."""

    trips: int
    body: Bound


Bound: TypeAlias = "tuple[BoundLaunch | BoundLoop, ...]"


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
            for expression in (launch.chunks, *launch.params):
                self._number(expression)
            for operand in launch.operands:
                for expression in (operand.offset, operand.stride, operand.start):
                    self._number(expression)

    def bind(self, values: Sequence[int]) -> Bound:
        """The list where the quantities have these values."""
        return self._bound(self._launches, values, itertools.count())

    def _bound(
        self, launches: tuple[Launch, ...], values: Sequence[int], sites: Iterator[int]
    ) -> Bound:
        bound_launches: list[BoundLaunch | BoundLoop] = []
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                trips = values[self._number(launch.trips)]
                bound_launches.append(BoundLoop(trips, self._bound(launch.body, values, sites)))
            else:
                bound_launches.append(self._bound_launch(launch, values, next(sites)))
        return tuple(bound_launches)

    def _bound_launch(self, launch: KernelLaunch, values: Sequence[int], site: int) -> BoundLaunch:
        code, chunks = self._code[launch.kernel], values[self._number(launch.chunks)]
        params = tuple([values[self._number(param)] for param in launch.params])
        # Workers without a chunk would still need scratch memory, and a driver would start threads
        # for nothing.
        workers = min(chunks, self._workers[launch.kernel])
        return BoundLaunch(
            site,
            code,
            chunks,
            workers,
            tuple(self._bound_operand(operand, values) for operand in launch.operands),
            params,
            workers * code.scratch_bytes(params) if workers > 0 else 0,
        )

    def _bound_operand(self, operand: Operand, values: Sequence[int]) -> BoundOperand:
        offset, stride, start = (
            values[self._number(expression)]
            for expression in (operand.offset, operand.stride, operand.start)
        )
        return BoundOperand(operand.entry, operand.depth, offset, operand.modulus, stride, start)


def scratch_bytes(bound: Bound) -> int:
    """The bytes of the working memory that the launches take turns with."""
    parts = (
        scratch_bytes(launch.body) if isinstance(launch, BoundLoop) else launch.scratch_bytes
        for launch in bound
    )
    # The largest and not the sum: the queue runs launches one after the other, so they take turns.
    return max(parts, default=0)


def enqueue(
    driver: Driver,
    bound: Bound,
    table: Table,
    scratch: DevicePointer,
    marks: list[tuple[int, Mark]] | None = None,
    trips: tuple[int, ...] = (),
) -> None:
    """Queues all launches; `marks` takes a mark after each, with its site.

    `scratch` has the bytes that `scratch_bytes` gives.
    """
    # The host walks the list and the device runs it in order: a queue needs no barriers, so the
    # flags that a team of threads obeys mean nothing here.
    for launch in bound:
        if isinstance(launch, BoundLoop):
            for trip in range(launch.trips):
                enqueue(driver, launch.body, table, scratch, marks, (*trips, trip))
            continue
        if launch.chunks > 0:
            driver.enqueue(
                launch.code,
                launch.chunks,
                launch.workers,
                [operand.at(table, trips) for operand in launch.operands],
                launch.params,
                scratch if launch.scratch_bytes else None,
            )
        if marks is not None:
            marks.append((launch.site, driver.mark()))

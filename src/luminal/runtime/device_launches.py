"""A launch list with the numbers of one binding of dims, and as calls of a Driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from luminal.memory.arrays import Array
from luminal.program.launch_list import CollectiveLaunch, KernelLaunch, Launch, LoopLaunch, Operand
from luminal.program.quantities import Quantities
from luminal.runtime.bound_operand import BoundOperand, Table
from luminal.runtime.by_host import HostExchange
from luminal.runtime.device_exchanges import BoundExchange, Exchanges
from luminal.runtime.driver import Call, Code, DevicePointer, Driver, integers_of, scratch_of
from luminal.runtime.exchange import Exchange
from luminal.shape.expression import Expression

WORD = 8  # bytes of an integer that a kernel reads


class BoundLaunch(NamedTuple):
    """A KernelLaunch with its numbers; `site` is its position among the list's launches,
    `integers` the byte of the list's integers at which its own begin, `numbers` what a library is
    told.
    """

    site: int
    code: Code
    workers: int
    operands: tuple[BoundOperand, ...]
    integers: int | None
    has_scratch: bool
    numbers: tuple[int, ...]


class BoundLoop(NamedTuple):
    """A LoopLaunch with the number of its trips and its bound body."""

    trips: int
    body: Bound


Bound: TypeAlias = "tuple[BoundLaunch | BoundExchange | BoundLoop, ...]"


class _Site(NamedTuple):
    """What a KernelLaunch has whatever the dims are. A grid is as large as any dims need, and
    kernels find in memory how many chunks there are.
    """

    site: int
    code: Code
    workers: int
    integers: int | None
    scratch: int  # the number of the quantity that is a worker's bytes
    has_scratch: bool
    told: tuple[int, ...]  # the quantities that a library is told


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
        self._workers = [driver.workers_of(one) if one.lanes else 1 for one in code]
        self._number = quantities.add
        self._sites: list[_Site | int] = []  # of collectives the position alone
        self._rows: list[int] = []  # the quantities that kernels read, launch by launch
        self._burned: dict[int, None] = {}  # those that say where operands lie, and trips
        # All Expressions are numbered here, before the first binding, so that a binding evaluates
        # them in one pass.
        self._note(launches)

    def _note(self, launches: tuple[Launch, ...]) -> None:
        """Adds all that is asked of a binding to the quantities."""
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                self._burn(launch.trips)
                self._note(launch.body)
                continue
            if isinstance(launch, CollectiveLaunch):
                self._sites.append(len(self._sites))
                for size in launch.sizes:
                    self._burn(size)
            else:
                self._sites.append(self._site(launch))
            for operand in launch.operands:
                for expression in (operand.offset, operand.stride, operand.start):
                    self._burn(expression)

    def _burn(self, expression: Expression) -> None:
        number = self._number(expression)
        if not expression.is_const:
            self._burned[number] = None

    def _site(self, launch: KernelLaunch) -> _Site:
        code, most = self._code[launch.kernel], launch.chunks.interval.hi
        if not code.lanes:
            return self._call(launch, code)
        row = [*map(self._number, integers_of(code, launch.params, launch.chunks))]
        start = WORD * len(self._rows) if row else None
        self._rows += row
        workers, scratch = self._workers[launch.kernel], scratch_of(code, launch.params)
        return _Site(
            len(self._sites),
            code,
            workers if most is None else max(1, min(most, workers)),
            start,
            self._number(scratch),
            scratch != 0,
            (),
        )

    def _call(self, launch: KernelLaunch, code: Code) -> _Site:
        """The site of a library's call, which the host makes: it tells the parameters."""
        for param in launch.params:
            self._burn(param)
        told = tuple(map(self._number, launch.params))
        number = self._number(code.scratch)
        return _Site(len(self._sites), code, 1, None, number, code.scratch != 0, told)

    @property
    def integer_bytes(self) -> int:
        """The bytes of `integers`."""
        return WORD * len(self._rows)

    def integers(self, values: Sequence[int]) -> Array:
        """All that the kernels read of a binding where the quantities have these values."""
        return np.array([values[number] for number in self._rows], np.int64)

    def variant(self, values: Sequence[int]) -> tuple[int, ...]:
        """What a list has that depends on dims: two bindings that agree in it are bound alike."""
        return tuple([values[number] for number in self._burned])

    def scratch_bytes(self, values: Sequence[int]) -> int:
        """The bytes of the working memory that the launches take turns with."""
        # The largest and not the sum: the queue runs launches one after the other.
        kernels = (site for site in self._sites if not isinstance(site, int))
        return max((site.workers * values[site.scratch] for site in kernels), default=0)

    def bind(self, values: Sequence[int]) -> Bound:
        """The list where the quantities have these values."""
        return self._bound(self._launches, values, iter(self._sites))

    def _bound(
        self, launches: tuple[Launch, ...], values: Sequence[int], sites: Iterator[_Site | int]
    ) -> Bound:
        bound_launches: list[BoundLaunch | BoundExchange | BoundLoop] = []
        for launch in launches:
            if isinstance(launch, LoopLaunch):
                trips = values[self._number(launch.trips)]
                bound_launches.append(BoundLoop(trips, self._bound(launch.body, values, sites)))
                continue
            site = next(sites)
            operands = tuple(self._bound_operand(operand, values) for operand in launch.operands)
            if isinstance(launch, CollectiveLaunch):
                assert isinstance(site, int)
                sizes = tuple(values[self._number(size)] for size in launch.sizes)
                bound_launches.append(BoundExchange(site, launch, operands, sizes))
            else:
                assert isinstance(site, _Site)
                numbers = site.integers, site.has_scratch
                told = tuple([values[number] for number in site.told])
                bound_launches.append(
                    BoundLaunch(site.site, site.code, site.workers, operands, *numbers, told)
                )
        return tuple(bound_launches)

    def _bound_operand(self, operand: Operand, values: Sequence[int]) -> BoundOperand:
        offset, stride, start = (
            values[self._number(expression)]
            for expression in (operand.offset, operand.stride, operand.start)
        )
        return BoundOperand(operand.entry, operand.depth, offset, operand.modulus, stride, start)


def calls(
    bound: Bound,
    table: Table,
    integers: DevicePointer,
    scratch: DevicePointer,
    exchanges: Exchanges,
    trips: tuple[int, ...] = (),
) -> Iterator[tuple[int, Call | Exchange | HostExchange]]:
    """All launches in their order, Loops written out, each with its site.

    `integers` and `scratch` have the bytes that DeviceLaunches says; `exchanges` makes collectives.
    """
    # The host walks the list and the device runs it in order: a queue needs no barriers, so the
    # flags that a team of threads obeys mean nothing here.
    for launch in bound:
        if isinstance(launch, BoundLoop):
            for trip in range(launch.trips):
                yield from calls(launch.body, table, integers, scratch, exchanges, (*trips, trip))
            continue
        if isinstance(launch, BoundExchange):
            yield launch.site, exchanges.made(launch, table, trips)
            continue
        offset = launch.integers
        operands = [operand.at(table, trips) for operand in launch.operands]
        yield (
            launch.site,
            Call(
                launch.code,
                launch.workers,
                exchanges.driver.with_maps(launch.code, operands),
                None if offset is None else DevicePointer(integers.block, integers.offset + offset),
                scratch if launch.has_scratch else None,
                launch.numbers,
            ),
        )

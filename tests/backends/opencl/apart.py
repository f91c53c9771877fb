"""An OpenCL device on which every operand has a buffer of its own size, so that oclgrind sees an
access beyond it: the runtime's own places lie in one workspace, where it would hit a neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from luminal.backends.opencl.driver import OpenClDriver
from luminal.runtime.driver import Array, DeviceBlock, DevicePointer
from tests.simt.driver import operand_bytes

ALIGNMENT = 8  # of what a buffer begins at: the largest element


class Span(NamedTuple):
    """Bytes of a block that operands share; a buffer stands for them during a launch."""

    block: DeviceBlock
    start: int
    size: int


class ApartDriver(OpenClDriver):
    """A few small groups, as a simulator needs them. Of what oclgrind must find: `missing` bytes
    that each buffer lacks at its end, and `unset` buffers, which nothing has written.
    """

    missing = 0
    unset = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.groups, self.workers = 3, 6

    def enqueue(
        self,
        code: Any,
        workers: int,
        operands: Sequence[DevicePointer],
        integers: DevicePointer | None,
        scratch: DevicePointer | None,
    ) -> None:
        own, sizes = operand_bytes(code, integers, self._integers)
        places = [*operands, *([scratch] if scratch else [])]
        sizes += [own * workers] * (len(places) - len(sizes))
        spans = spanned(places, sizes)
        made = {span: self.allocate(span.size - self.missing) for span in set(spans) - {None}}
        for (block, start, size), buffer in made.items():
            if not self.unset:
                self.copy(DevicePointer(block, start), DevicePointer(buffer), size - self.missing)
        moved = [
            place if span is None else DevicePointer(made[span], place.offset - span.start)
            for place, span in zip(places, spans, strict=True)
        ]
        apart, work = moved[: len(operands)], moved[len(operands) :]
        super().enqueue(code, workers, apart, integers, work[0] if work else None)
        for (block, start, size), buffer in made.items():
            self.copy(DevicePointer(buffer), DevicePointer(block, start), size - self.missing)
        self.wait()  # the buffers go

    def _integers(self, place: DevicePointer, count: int) -> Array:
        row = np.zeros(count, np.int64)
        self.read(place, row)
        return row


def spanned(places: Sequence[DevicePointer], sizes: Sequence[int]) -> list[Span | None]:
    """The span of each place with its size: those that overlap have one; None of no bytes."""
    found: list[Span | None] = [None] * len(places)
    end, together = 0, list[int]()
    for number in sorted(range(len(places)), key=lambda n: (key(places[n]), -sizes[n])):
        block, first = places[number]
        last = first + sizes[number]
        if first == last:
            continue
        if not together or places[together[0]].block != block or first >= end:
            end, together = 0, []
            start = first - first % ALIGNMENT
        end = max(end, last)
        together.append(number)
        for each in together:
            found[each] = Span(block, start, end - start)
    return found


def key(place: DevicePointer) -> tuple[int, int]:
    """An order in which places of one block follow one another."""
    return getattr(place.block, "int_ptr", 0), place.offset

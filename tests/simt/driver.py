"""A Driver for each dialect whose device is the CPU, every access and every barrier checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

import numpy as np

from luminal.backends.c_backend import CCode
from luminal.codegen.c_family.dialect import KERNEL, Dialect
from luminal.codegen.c_family.kernel import Spelled
from luminal.codegen.c_family.phases import MAP
from luminal.runtime.driver import (
    Array,
    DeviceBlock,
    DeviceMemory,
    DevicePointer,
    Driver,
    Mark,
    launch_shape,
)
from tests.simt.compiling import compile
from tests.simt.launching import ORDERS, At, launch
from tests.simt.tensor_map import words

GROUP = 4
ALIGNMENT = 256
EMPTY = np.zeros(0, np.uint8)


class CheckedDriver(Driver):
    """Runs the texts that `spell` makes in a dialect, known to the shims as `name`.

    A launch raises DeviceFault for what no device may be asked to do. What an operand may touch is
    its own bytes, not those of its block.
    """

    workers = 6
    groups = 2
    most_lanes = 1024

    def __init__(
        self,
        name: str,
        dialect: Dialect,
        spell: Callable[[Any], Spelled],
        orders: Sequence[str] = tuple(ORDERS),
        warp_size: int = 32,
    ) -> None:
        self.name, self.dialect, self.spell, self.orders = name, dialect, spell, orders
        self.warp_size = warp_size

    def memory(self) -> DeviceMemory:
        return DeviceMemory(None, None)

    def allocate(self, size: int) -> DeviceBlock:
        memory = np.full(size + ALIGNMENT, 0xCB, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + size]

    def free(self, block: DeviceBlock) -> None:
        block[:] = 0xDD

    def write(self, target: DevicePointer, source: Array) -> None:
        _part(target, source.nbytes)[:] = source.reshape(-1).view(np.uint8)

    def read(self, source: DevicePointer, target: Array) -> None:
        target.reshape(-1).view(np.uint8)[:] = _part(source, target.nbytes)

    def copy(self, source: DevicePointer, target: DevicePointer, size: int) -> None:
        _part(target, size)[:] = _part(source, size)

    def compile(self, kernel: Any, text: str) -> CCode:
        spelled = self.spell(kernel)
        return CCode(spelled, compile(spelled.text, self.name))

    def with_maps(self, code: Any, operands: Sequence[DevicePointer]) -> Sequence[DevicePointer]:
        made = [DevicePointer(self.allocate(MAP)) for _ in code.spelled.maps]
        for place, (number, tensor) in zip(made, code.spelled.maps, strict=True):
            self.write(place, words(tensor, _start(operands[number])))
        return [*operands, *made]

    def enqueue(
        self,
        code: Any,
        workers: int,
        operands: Sequence[DevicePointer],
        integers: DevicePointer | None,
        scratch: DevicePointer | None,
    ) -> None:
        own, sizes = operand_bytes(code, integers, self._integers)
        places = [*operands, scratch or DevicePointer(EMPTY), *([integers] if integers else ())]
        sizes += [own * workers if scratch else 0, *([8 * len(code.params) + 16] * bool(integers))]
        maps = {
            len(code.spelled.expanded.buffers) + n: k for n, (k, _) in enumerate(code.spelled.maps)
        }
        sizes[len(operands) - len(maps) : len(operands) - len(maps)] = [128] * len(maps)
        memory = _spans(places, sizes)
        groups, threads = launch_shape(code, workers, gcd(GROUP, workers), scratch)
        launch(
            code.handle,
            KERNEL,
            (groups,),
            (threads,),
            memory,
            dynamic=code.dynamic_bytes,
            early=memory[len(operands) + 1 :] if self.dialect.depend else None,
            orders=self.orders,
            warp_size=self.warp_size,
            maps=maps,
            cluster=code.cluster,
        )

    def _integers(self, place: DevicePointer, count: int) -> Array:
        return _part(place, 8 * count).view(np.int64)

    def wait(self, mark: Mark | None = None) -> None:
        pass

    def mark(self) -> Mark:
        return time.perf_counter()

    def seconds(self, first: Mark, last: Mark) -> float:
        return float(last - first)


def operand_bytes(
    code: Any, integers: DevicePointer | None, read: Callable[[DevicePointer, int], Array]
) -> tuple[int, list[int]]:
    """The bytes of scratch of a worker, and of each operand, as the integers of a launch say, which
    are as they must be.
    """
    assert bool(code.params) == (integers is not None)
    row = read(integers, len(code.params) + 2).tolist() if integers else [0, 0]
    names, params = tuple(param.name for param in code.params), row[: len(code.params)]
    stride = code.scratch.compiled(names)(*params)
    assert integers is None or row[-2] == stride
    kernel = code.spelled.expanded
    return stride, [b.size.compiled(names)(*params) * b.dtype.size for b in kernel.buffers]


def _part(place: DevicePointer, size: int) -> Array:
    assert place.offset + size <= len(place.block), "beyond the block"
    part: Array = place.block[place.offset : place.offset + size]
    return part


def _spans(places: Sequence[DevicePointer], sizes: Sequence[int]) -> list[At]:
    """Each operand's bytes, from a multiple of 8 on; operands that overlap lie in one array."""
    found = {number: At(EMPTY, 0) for number, size in enumerate(sizes) if size == 0}
    together: list[int] = []
    start = end = 0
    for number in sorted(set(range(len(places))) - set(found), key=lambda n: _start(places[n])):
        first = _start(places[number])
        if first >= end:
            together, start, end = [], first - first % 8, first
        end = max(end, first + sizes[number])
        together.append(number)
        block = places[number].block
        base = block.ctypes.data
        span = block[start - base : end - base]
        found |= {n: At(span, _start(places[n]) - start, start) for n in together}
    return [found[number] for number in range(len(places))]


def _start(place: DevicePointer) -> int:
    return int(place.block.ctypes.data) + place.offset

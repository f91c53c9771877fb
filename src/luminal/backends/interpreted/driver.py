"""A device that is none: kernels run by the tile interpreter, in memory of their own.

Nothing that is queued happens before somebody waits, and memory that was given back is gone: what a
runtime does wrong about a device's queue and memory shows here.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from luminal.base.dtypes import DType, int64
from luminal.base.errors import LuminalError
from luminal.base.records import dataclass
from luminal.kernel import tile_interpreter
from luminal.kernel.scratch import scratch_offsets
from luminal.kernel.tile_ir import Kernel
from luminal.memory.dlpack_device import EXTENSION
from luminal.runtime.driver import (
    Array,
    Call,
    DeviceError,
    DeviceMemory,
    DevicePointer,
    Driver,
)
from luminal.runtime.exchange import Exchange
from luminal.shape.expression import Expression, Symbol

WORKERS = 3
MEMORY = 1 << 32  # bytes


@dataclass(slots=True)
class Allocation:
    """Some memory; None once it was given back."""

    bytes: Array | None


NOWHERE = DevicePointer(Allocation(None))


@dataclass(slots=True)
class Moment:
    """A mark, and when the queue came to it."""

    seconds: float = math.nan


@dataclass(frozen=True, slots=True)
class InterpretedCode:
    """A kernel of tile IR, which is its own code."""

    kernel: Kernel

    @property
    def lanes(self) -> int:
        """The number of lanes of a worker, as a driver's Code has it."""
        return self.kernel.lanes

    @property
    def params(self) -> tuple[Symbol, ...]:
        """The kernel's parameters, as a driver's Code gives them."""
        return self.kernel.params

    @property
    def scratch(self) -> Expression:
        """The bytes of working memory of a worker, likewise."""
        return scratch_offsets(self.kernel)[-1]


@dataclass(frozen=True, slots=True)
class InterpretedRecording:
    """A run as its driver queues it again."""

    driver: InterpretedDriver
    sent: tuple[Array, DevicePointer]
    calls: Sequence[Call | Exchange]
    taken: tuple[DevicePointer, Array]

    def run(self) -> None:
        """Stages, enqueues and fetches again what was recorded."""
        self.driver.stage(*self.sent)
        for call in self.calls:
            self.driver.put(call)
        self.driver.fetch(*self.taken)


class InterpretedDriver(Driver):
    """A device with `total` bytes of memory."""

    workers = groups = WORKERS
    most_lanes = 1024
    survives_fork = True
    dlpack_device = (EXTENSION, 0)

    def __init__(self, name: str = "interpreted", total: int = MEMORY) -> None:
        self.name = name
        self._total = self._free = total
        self._queue: deque[Callable[[], None]] = deque()

    def address(self, place: DevicePointer) -> int:
        return int(self._bytes(place).ctypes.data)

    def block_at(self, address: int, size: int) -> Allocation:
        held = (ctypes.c_uint8 * size).from_address(address)
        return Allocation(np.frombuffer(memoryview(held), np.uint8))

    def memory(self) -> DeviceMemory:
        return DeviceMemory(self._total, self._free)

    def allocate(self, size: int) -> Allocation:
        self._run_queue()  # blocks may wait to be given back
        if size > self._free:
            raise MemoryError(f"{self.name}: cannot allocate {size} bytes; {self._free} are free")
        self._free -= size
        return Allocation(np.empty(size, np.uint8))

    def free(self, block: Allocation) -> None:
        def give_back() -> None:
            self._free += self._bytes(DevicePointer(block)).size
            block.bytes = None

        self._queue.append(give_back)

    def write(self, target: DevicePointer, source: Array) -> None:
        staged = source.copy().reshape(-1).view(np.uint8)
        self._queue.append(lambda: self._put(target, staged))

    def read(self, source: DevicePointer, target: Array) -> None:
        self._run_queue()
        target.reshape(-1).view(np.uint8)[...] = self._bytes(source, target.nbytes)

    def fetch(self, source: DevicePointer, target: Array) -> None:
        def copied() -> None:
            target.reshape(-1).view(np.uint8)[...] = self._bytes(source, target.nbytes)

        self._queue.append(copied)

    def record(
        self,
        sent: tuple[Array, DevicePointer],
        calls: Sequence[Call | Exchange],
        taken: tuple[DevicePointer, Array],
    ) -> InterpretedRecording:
        return InterpretedRecording(self, sent, calls, taken)

    def stage(self, source: Array, target: DevicePointer) -> None:
        """Queues a copy of what lies there when its turn comes, as a recording's is."""
        self._queue.append(lambda: self._put(target, source))

    def copy(self, source: DevicePointer, target: DevicePointer, size: int) -> None:
        self._queue.append(lambda: self._put(target, self._bytes(source, size)))

    def compile(self, kernel: Kernel, text: str) -> InterpretedCode:
        return InterpretedCode(kernel)

    def enqueue(
        self,
        code: InterpretedCode,
        workers: int,
        operands: Sequence[DevicePointer],
        integers: DevicePointer | None,
        scratch: DevicePointer | None,
    ) -> None:
        # Queued as a closure, not run: a runtime that reads before it waits sees old memory, as on
        # a device.
        def launch() -> None:
            kernel, (values, chunks) = code.kernel, self.numbers(code, integers)
            if not 1 <= workers <= self.workers:
                raise DeviceError(f"{self.name}: {workers} workers, of {self.workers} at most")
            needed = workers * int(code.scratch.evaluate(values))
            if needed:
                self._bytes(scratch or NOWHERE, needed)[...] = 0xFF
            arrays = {}
            for buffer, place in zip(kernel.buffers, operands, strict=True):
                count = int(buffer.size.evaluate(values))
                arrays[buffer.name] = self._elements(place, count, buffer.dtype)
            with np.errstate(all="ignore"):  # no device warns of an infinity
                tile_interpreter.run(kernel, arrays, values, chunks)

        self._queue.append(launch)

    def wait(self, mark: Moment | None = None) -> None:
        self._run_queue(mark)

    def mark(self) -> Moment:
        moment = Moment()

        def reached() -> None:
            moment.seconds = time.perf_counter()

        self._queue.append(reached)
        return moment

    def seconds(self, first: Moment, last: Moment) -> float:
        self._run_queue()
        return last.seconds - first.seconds

    def _run_queue(self, mark: Moment | None = None) -> None:
        """Does all that is queued, up to the mark, then raises the first error of it."""
        first: LuminalError | None = None
        while self._queue and (mark is None or math.isnan(mark.seconds)):
            try:
                self._queue.popleft()()
            except LuminalError as error:
                first = first or error
        if first is not None:
            raise first

    def numbers(
        self, code: InterpretedCode, integers: DevicePointer | None
    ) -> tuple[dict[str, int], int]:
        """The parameters of a launch by name, and its chunks, as they lie in memory now."""
        names = [symbol.name for symbol in code.params]
        if bool(names) != (integers is not None):
            raise DeviceError(f"{self.name}: {len(names)} parameters, of integers at {integers}")
        row = self._elements(integers, len(names) + 2, int64).tolist() if integers else []
        values = dict(zip(names, row, strict=False))
        grid = math.prod(int(level.count.evaluate(values)) for level in code.kernel.grid)
        stride, chunks = row[-2:] if integers else (None, grid)
        if stride not in (None, code.scratch.evaluate(values)) or not 0 <= chunks <= grid:
            raise DeviceError(f"{self.name}: integers {row}; a grid of {grid} chunks has {values}")
        return values, chunks

    def _put(self, target: DevicePointer, source: Array) -> None:
        self._bytes(target, source.size)[...] = source

    def _elements(self, place: DevicePointer, count: int, dtype: DType) -> Array:
        if place.offset % dtype.size:
            raise DeviceError(f"{self.name}: {dtype} at byte {place.offset} of a block")
        return self._bytes(place, count * dtype.size).view(dtype.numpy)

    def _bytes(self, place: DevicePointer, size: int | None = None) -> Array:
        """Bytes of a block from here on, all or so many. Raises DeviceError beyond its ends."""
        held: Array | None = place.block.bytes
        if held is None:
            raise DeviceError(f"{self.name}: no memory, or some that was given back")
        stop = held.size if size is None else place.offset + size
        if not 0 <= place.offset <= stop <= held.size:
            raise DeviceError(
                f"{self.name}: bytes {place.offset}..{stop} are outside of a block of {held.size}"
            )
        return held[place.offset : stop]

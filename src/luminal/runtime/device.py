"""A device beside the host: a Driver, and Buffers in its memory."""

from __future__ import annotations

import gc
import itertools
import os
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from luminal.base import config, forks
from luminal.base.dtypes import DType
from luminal.base.errors import CompileError, LuminalError
from luminal.memory.arrays import Array, Buffer, DeviceMemory, MemorySpace, aligned_empty
from luminal.memory.poison import PATTERN
from luminal.runtime.driver import Code, DeviceBlock, DeviceError, DevicePointer, Driver
from luminal.runtime.flight import Flight, Queued

if TYPE_CHECKING:  # a host without a device starts without kernels
    from luminal.kernel.tile_ir import Kernel
    from luminal.runtime.collectives.communicator import Communicator
    from luminal.runtime.ranks import Engine


POISON = np.array(PATTERN, np.uint64).tobytes()


class DeviceBuffer(Buffer):
    """A block of a device, given back when nobody holds the Buffer any more.

    `is_whole` is False where replacing its value failed: half a value is never read. `serial` is
    its own in this process, as no address is.
    """

    __slots__ = ("__weakref__", "block", "dtype", "is_whole", "serial", "shape", "space")
    space: Device
    serials = itertools.count()

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: DType) -> None:
        self.space = device
        self.shape = shape
        self.dtype = dtype
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.size
        self.is_whole = True
        self.serial = next(self.serials)
        self.block = device.allocate(max(1, self.nbytes))
        weakref.finalize(self, device.drop, self.block).atexit = False  # the process ends with it

    @property
    def place(self) -> DevicePointer:
        """The place at which the buffer starts."""
        return DevicePointer(self.block)

    def settle(self) -> None:
        if self.space.flight:
            with self.space.entered() as driver:
                self.space.flight.settle(driver)

    @property
    def array(self) -> Array:
        return self.copy()

    def copy(self) -> Array:
        array = aligned_empty(self.shape, self.dtype)
        with self.space.entered() as driver:
            self.check()
            driver.read(self.place, array)
        return array

    def write(self, value: Any) -> None:
        array = np.ascontiguousarray(np.broadcast_to(value, self.shape))
        # Set before and not after: the driver may fail in the middle.
        with self.space.entered() as driver:
            self.is_whole = False
            driver.write(self.place, array)
            self.is_whole = True

    def check(self) -> None:
        """Raises DeviceError if only half of a new value is there."""
        if not self.is_whole:
            raise DeviceError(
                f"{self.space.name}: a run or a copy failed while it replaced this value; set it "
                "anew: state.reset(), or .set(array)"
            )


class LentBuffer(DeviceBuffer):
    """Another library's memory on a device, which it keeps alive."""

    __slots__ = ()

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: DType, address: int) -> None:
        self.space = device
        self.shape = shape
        self.dtype = dtype
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.size
        self.is_whole = True
        self.serial = -address  # which tells it from others, as serials count up from 0
        self.block = device.driver.block_at(address, max(1, self.nbytes))


class _Entered:
    """A `with` around what a thread asks of a device: a generator would take five times as long."""

    __slots__ = ("_device",)

    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> Driver:
        self._device.take()
        return self._device.driver

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._device.give(error)


class Device(MemorySpace[DeviceBuffer]):
    """The door to a driver: all that is asked of it goes through here, by one thread at a time, and
    not in a forked child where its device does not survive that.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.name = driver.name
        self._process = os.getpid()
        self._lock = forks.lock()
        self._dropped: deque[DeviceBlock] = deque()  # of Buffers that are gone
        self._releases: deque[Callable[[], None]] = deque()  # of arrays of others, likewise
        self.flight = Flight()
        self._entered = _Entered(self)
        self._communicators: dict[Engine, Communicator] = {}

    def entered(self) -> _Entered:
        """The driver, for this thread alone. Do not enter twice. Raises DeviceError in a child."""
        return self._entered

    def take(self) -> None:
        """Begins what `entered` stands around."""
        if self._is_lost:
            raise DeviceError(
                f"{self.name}: this process was forked, and the device is its parent's; start "
                "processes by 'spawn', or use backend 'cpu' here"
            )
        self._lock.acquire()
        # Before the work, as the memory that it asks for may be just what was dropped; and after
        # it, for what was dropped while this thread held the lock.
        self._free()

    def give(self, error: BaseException | None) -> None:
        """Ends the use that `take` began; an error of the device fails what is under way."""
        try:
            if isinstance(error, LuminalError) and not isinstance(error, CompileError):
                # What was queued may have failed, and nothing else will tell of it.
                self.flight.fail(error)
            self._free()
        finally:
            self._lock.release()

    def follow(self, queue: int) -> None:
        """Runs from now on wait for all that is in another library's queue by now."""
        with self.entered() as driver:
            driver.follow(queue)

    def precede(self, queue: int) -> None:
        """What comes into another library's queue from now on waits for all runs by now."""
        with self.entered() as driver:
            driver.precede(queue)

    def finish(self, run: Queued) -> None:
        """Waits until a run is over. Raises what went wrong with it."""
        if not run.is_over:
            with self.entered() as driver:
                self.flight.settle(driver, run)
        run.check()

    def empty(self, shape: tuple[int, ...], dtype: DType) -> DeviceBuffer:
        buffer = DeviceBuffer(self, shape, dtype)
        if config.get("LUMINAL_POISON"):
            with self.entered() as driver:
                driver.fill(buffer.place, buffer.nbytes, POISON)
        return buffer

    def memory(self) -> DeviceMemory:
        with self.entered() as driver:
            return driver.memory()

    def allocate(self, size: int) -> DeviceBlock:
        """A driver's block, which `drop` gives back. Raises MemoryError."""
        try:
            with self.entered() as driver:
                return driver.allocate(size)
        except MemoryError:
            gc.collect()  # Buffers in cycles that nobody holds
            with self.entered() as driver:
                return driver.allocate(size)

    def drop(self, block: DeviceBlock) -> None:
        """Gives a block back: at once, or when the thread that works with the driver is done."""
        if self._is_lost:
            return
        # A finalizer runs in any thread, at any time, in one that holds the lock as well: it may
        # not wait. What it leaves is given back by whoever is inside.
        self._dropped.append(block)
        if self._lock.acquire(blocking=False):
            try:
                self._free()
            finally:
                self._lock.release()

    def call_later(self, release: Callable[[], None]) -> None:
        """Calls what gives back another library's memory, once no run in flight can read it."""
        self._releases.append(release)
        if self._lock.acquire(blocking=False):
            try:
                self._free()
            finally:
                self._lock.release()

    def communicator(self, engine: Engine) -> Communicator:
        """The ranks of a group as this device's library knows them; at first all of them must ask.

        Raises as `communicator.joined` does.
        """
        from luminal.runtime.collectives.communicator import joined  # late: most have one rank

        if engine not in self._communicators:
            driver = self.driver
            self._communicators[engine] = joined(driver.library(), engine, driver.card())
        return self._communicators[engine]

    def compile(self, kernel: Kernel, text: str) -> Code:
        """The kernel's code; `text` is its canonical text. Raises CompileError."""
        if kernel.call is not None and kernel.call.kernel.product is not None:
            with self.entered() as driver:
                return driver.product(kernel.call.kernel.product)
        if kernel.call is not None:
            of_python = "a Python function, which runs on the host"
            what = of_python if kernel.call.is_python else "written by hand for a CPU"
            raise CompileError(
                f"{self.name}: custom kernel {kernel.call.kernel.name!r} is {what}; "
                "use backend 'cpu'"
            )
        self.driver.check_lanes(kernel.lanes)
        with self.entered() as driver:
            return driver.compile(kernel, text)

    @property
    def _is_lost(self) -> bool:
        return os.getpid() != self._process and not self.driver.survives_fork

    def _free(self) -> None:
        while self._dropped:
            self.driver.free(self._dropped.popleft())
        while self._releases and not self.flight:
            self._releases.popleft()()

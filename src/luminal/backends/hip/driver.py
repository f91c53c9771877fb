"""One AMD device as a Driver: a pool of memory, one stream, modules, launches."""

from __future__ import annotations

import ctypes
import socket
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from luminal.backends.c_backend import CCode, CTogether
from luminal.backends.hip import hiprtc, presence
from luminal.backends.hip.queues import HipQueues
from luminal.backends.lt import LtDriver, Products
from luminal.base import tracing
from luminal.codegen.c_family.dialect import KERNEL
from luminal.codegen.c_family.hip import HIP
from luminal.codegen.c_family.kernel import Spelled
from luminal.codegen.c_family.persistent import Together, spell_tiles_together
from luminal.kernel.tile_ir import Kernel
from luminal.memory import dlpack_device
from luminal.runtime import object_cache
from luminal.runtime.collectives.library import Library
from luminal.runtime.driver import (
    Array,
    Call,
    DeviceBlock,
    DeviceError,
    DeviceMemory,
    DevicePointer,
    Mark,
    launch_shape,
)
from luminal.runtime.exchange import Exchange, meets

AnyCode = TypeVar("AnyCode", bound=CCode)
GROUP = 256  # threads of a group: one row of 64 lanes for each of a compute unit's four SIMDs
TO_DEVICE, TO_HOST, WITHIN = 1, 2, 3  # hipMemcpyKind's
RELAXED = 2  # hipStreamCaptureModeRelaxed: other threads may allocate meanwhile
GROUPS = 4  # of a compute unit: half of the lanes it holds, which leaves 128 registers each


class _Event:
    """A HIP event, destroyed with this."""

    def __init__(self, event: Any, destroy: Callable[[Any], object]) -> None:
        self.event = event
        weakref.finalize(self, destroy, event)


class HipRecording:
    """A graph, captured from a stream of its own, and destroyed with this."""

    def __init__(self, driver: HipDriver, graph: Any, staged: tuple[Array, Array]) -> None:
        self._driver, self._graph = driver, graph
        self._staged = staged  # the graph has their addresses
        weakref.finalize(self, driver.hip.hipGraphExecDestroy, graph).atexit = False

    def run(self) -> None:
        """Queues all of the recorded run, by one call."""
        driver = self._driver
        driver._do(driver.hip.hipGraphLaunch, self._graph, driver.stream)


class HipDriver(LtDriver):
    """The device `hip:number`; `spell` makes HIP of kernels. A block is an address.

    Modules stay loaded.
    """

    def __init__(self, spell: Callable[[Kernel], Spelled], number: int = 0) -> None:
        self.name = f"hip:{number}"
        self.spell = spell
        self.number = number
        self.hip = hip = presence.bindings()
        properties = self._do(hip.hipGetDeviceProperties, number)
        self.architecture = properties.gcnArchName
        self.groups = properties.multiProcessorCount * GROUPS
        self.workers = self.groups * GROUP
        self.most_lanes = properties.maxThreadsPerBlock
        self.stream = self._do(hip.hipStreamCreate)
        self.dlpack_device = dlpack_device.ROCM, number
        self.stream_number: int = int(self.stream)
        self.units: int = properties.multiProcessorCount
        self.warp = properties.warpSize
        self.tick = 1e-3 / self._wall_clock()
        self._event: _Event | None = None  # between our stream and those of others

    def _do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What one of hip-python's functions returns beside its status, for this device.

        Raises DeviceError, or MemoryError, with the status by name.
        """
        self.hip.hipSetDevice(self.number)
        status, *values = function(*arguments)
        if status == self.hip.hipError_t.hipErrorOutOfMemory:
            raise MemoryError(f"{self.name}: {status.name}")
        if status != self.hip.hipError_t.hipSuccess:
            raise DeviceError(f"{self.name}: {function.__name__}: {status.name}")
        return tuple(values) if len(values) > 1 else next(iter(values), None)

    def _wall_clock(self) -> int:
        """The kilohertz of the clock that kernels tell times by."""
        rate = self.hip.hipDeviceAttribute_t.hipDeviceAttributeWallClockRate
        return int(self._do(self.hip.hipDeviceGetAttribute, rate, self.number))

    goes_by_address = True

    def address(self, place: DevicePointer) -> int:
        return _address(place)

    def block_at(self, address: int, size: int) -> DeviceBlock:
        return address

    def follow(self, queue: int) -> None:
        self._order(queue, self.stream_number)

    def precede(self, queue: int) -> None:
        self._order(self.stream_number, queue)

    def _order(self, first: int, second: int) -> None:
        """What the second stream is given from now on waits for what the first was given by now."""
        if self._event is None:
            self._event = _Event(self._do(self.hip.hipEventCreate), self.hip.hipEventDestroy)
        # A wait is for what was recorded last when it is queued, so one event serves all.
        self._do(self.hip.hipEventRecord, self._event.event, first)
        self._do(self.hip.hipStreamWaitEvent, second, self._event.event, 0)

    has_library = True

    def library(self) -> Library:
        """RCCL, by ROCm's bindings."""
        from luminal.backends.hip import rccl  # late: an extra

        return rccl.library(lambda: self.hip.hipSetDevice(self.number))

    def queues(self) -> HipQueues:
        return HipQueues(self.hip, self._do)

    def card(self) -> str:
        p = self._do(self.hip.hipGetDeviceProperties, self.number)
        place = f"{p.pciDomainID:04x}:{p.pciBusID:02x}:{p.pciDeviceID:02x}"
        return f"card {place} of {socket.gethostname()}"

    def is_reached(self, mark: Mark) -> bool:
        self.hip.hipSetDevice(self.number)
        (status,) = self.hip.hipEventQuery(mark.event)
        if status == self.hip.hipError_t.hipErrorNotReady:
            return False
        if status != self.hip.hipError_t.hipSuccess:
            raise DeviceError(f"{self.name}: hipEventQuery: {status.name}")
        return True

    def memory(self) -> DeviceMemory:
        free, total = self._do(self.hip.hipMemGetInfo)
        return DeviceMemory(total, free)

    def allocate(self, size: int) -> DeviceBlock:
        try:
            return int(self._do(self.hip.hipMallocAsync, size, self.stream))
        except MemoryError:
            raise MemoryError(
                f"{self.name}: cannot allocate {size} bytes; {self.memory().free} are free"
            ) from None

    def free(self, block: DeviceBlock) -> None:
        self._do(self.hip.hipFreeAsync, block, self.stream)

    def write(self, target: DevicePointer, source: Array) -> None:
        kind = self.hip.hipMemcpyKind.hipMemcpyHostToDevice
        self._copy(_address(target), source.ctypes.data, source.nbytes, kind)

    def read(self, source: DevicePointer, target: Array) -> None:
        kind = self.hip.hipMemcpyKind.hipMemcpyDeviceToHost
        self._copy(target.ctypes.data, _address(source), target.nbytes, kind)
        self.wait()

    def fetch(self, source: DevicePointer, target: Array) -> None:
        self._async(target.ctypes.data, _address(source), target.nbytes, TO_HOST, self.stream)

    def copy(self, source: DevicePointer, target: DevicePointer, size: int) -> None:
        self._async(_address(target), _address(source), size, WITHIN, self.stream)

    def _async(self, target: int, source: int, size: int, kind: int, stream: Any) -> None:
        """Queues a copy; memory of the host is pinned, or the caller waits before it is used."""
        if size:
            copied = self.hip.hipMemcpyKind(kind)
            self._do(self.hip.hipMemcpyAsync, target, source, size, copied, stream)

    def _copy(self, target: int, source: int, size: int, kind: Any) -> None:
        """Copies from or to the host, which has the bytes or may change them when this returns."""
        if size:
            self._do(self.hip.hipMemcpyWithStream, target, source, size, kind, self.stream)

    def compile(self, kernel: Kernel, text: str) -> CCode:
        return self._loaded(CCode, self.spell(kernel))

    def together(self, kernels: Sequence[Kernel]) -> CTogether:
        return self._loaded(CTogether, spell_tiles_together(kernels, HIP))

    def _loaded(self, kind: Callable[[Any, Any], AnyCode], spelled: Spelled | Together) -> AnyCode:
        """The code of a text, on the device."""
        module = self._do(self.hip.hipModuleLoadData, self._object(spelled.text))
        function = self._do(self.hip.hipModuleGetFunction, module, KERNEL.encode())
        return kind(spelled, function)

    def workers_of(self, code: Any) -> int:
        """The groups that units hold at once, by the code's registers and memory, where they wait
        for each other; of other code `groups`.
        """
        if type(code) is not CTogether:
            return super().workers_of(code)
        held = self.hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor
        shape = code.lanes, code.dynamic_bytes
        return self.units * max(1, int(self._do(held, code.handle, *shape)))

    def _object(self, text: str) -> bytes:
        objects = object_cache.default()
        key = object_cache.key(text, self.architecture, hiprtc.version(), *hiprtc.OPTIONS)
        code = objects.get(key)
        if code is None:
            with tracing.span("compile"):
                code = hiprtc.compile(text, self.architecture)
            objects.put(key, code)
        return code

    def enqueue(
        self,
        code: Any,
        workers: int,
        operands: Sequence[DevicePointer],
        integers: DevicePointer | None,
        scratch: DevicePointer | None,
    ) -> None:
        self._launch(self.stream, Call(code, workers, operands, integers, scratch))

    def _launch(self, stream: Any, call: Call) -> None:
        code, workers, operands, integers, scratch, _ = call
        memory = [_address(operand) for operand in operands]
        memory.append(0 if scratch is None else _address(scratch))
        if integers is not None:
            memory.append(_address(integers))
        held = (ctypes.c_int64 * len(memory))(*memory)
        start = ctypes.addressof(held)
        arguments = (ctypes.c_void_p * len(memory))(*range(start, start + 8 * len(memory), 8))
        groups, threads = launch_shape(code, workers, GROUP, scratch)
        shape = (groups, 1, 1, threads, 1, 1, code.dynamic_bytes)
        if type(code) is CTogether:  # its groups wait for each other
            launch = self.hip.hipModuleLaunchCooperativeKernel
            self._do(launch, code.handle, *shape, stream, arguments)
        else:
            launch = self.hip.hipModuleLaunchKernel
            self._do(launch, code.handle, *shape, stream, arguments, None)

    def staging(self, size: int) -> Array:
        """Pinned memory, which the device copies without the host's help."""
        address = int(self._do(self.hip.hipHostMalloc, max(1, size), 0))
        held = (ctypes.c_uint8 * size).from_address(address)
        weakref.finalize(held, self.hip.hipHostFree, address).atexit = False
        return np.frombuffer(memoryview(held), np.uint8)

    def record(
        self,
        sent: tuple[Array, DevicePointer],
        calls: Sequence[Call | Exchange],
        taken: tuple[DevicePointer, Array],
    ) -> HipRecording:
        hip, stream = self.hip, self._do(self.hip.hipStreamCreate)
        (source, target), (result, into) = sent, taken
        self._do(hip.hipStreamBeginCapture, stream, hip.hipStreamCaptureMode(RELAXED))
        try:
            self._async(_address(target), source.ctypes.data, source.nbytes, TO_DEVICE, stream)
            for call in calls:
                if not isinstance(call, Call):
                    self.put_beside(call, int(stream))
                elif call.code.lanes:
                    self._launch(stream, call)
                else:
                    self.queue_product(call, int(stream))
            if meets(calls):
                self.side.join(int(stream))
            self._async(into.ctypes.data, _address(result), into.nbytes, TO_HOST, stream)
        finally:
            graph = self._do(hip.hipStreamEndCapture, stream)
            self._do(hip.hipStreamDestroy, stream)
        executable = self._do(hip.hipGraphInstantiateWithFlags, graph, 0)
        self._do(hip.hipGraphDestroy, graph)
        return HipRecording(self, executable, (source, into))

    def opened(self) -> Products:
        from luminal.backends.hip import hipblaslt, rocblas  # late: they are large

        self.hip.hipSetDevice(self.number)
        return rocblas.RocBlas() if hipblaslt.path() is None else hipblaslt.opened()

    def call_library(self, call: Call) -> None:
        self.hip.hipSetDevice(self.number)
        super().call_library(call)

    def wait(self, mark: Mark | None = None) -> None:
        if mark is None:
            self._do(self.hip.hipStreamSynchronize, self.stream)
        else:
            self._do(self.hip.hipEventSynchronize, mark.event)

    def mark(self) -> Mark:
        mark = _Event(self._do(self.hip.hipEventCreate), self.hip.hipEventDestroy)
        self._do(self.hip.hipEventRecord, mark.event, self.stream)
        return mark

    def seconds(self, first: Mark, last: Mark) -> float:
        self._do(self.hip.hipEventSynchronize, last.event)
        return float(self._do(self.hip.hipEventElapsedTime, first.event, last.event)) * 1e-3


def _address(place: DevicePointer) -> int:
    return int(place.block) + place.offset

"""One CUDA device as a Driver: a pool of memory, one stream, modules, launches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from cuda.bindings import driver as cuda
from cuda.core import (
    Buffer,
    Device,
    EventOptions,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ObjectCode,
    Stream,
    launch,
)
from cuda.core.graph import Graph, GraphBuilder

from luminal.backends.c_backend import CCode, CTogether
from luminal.backends.cuda import chips, nvrtc
from luminal.backends.cuda.queues import CudaQueues
from luminal.backends.cuda.tensor_maps import encoded
from luminal.backends.lt import Lt, LtDriver
from luminal.base import tracing
from luminal.base.errors import CompileError
from luminal.codegen.c_family.cuda import CUDA
from luminal.codegen.c_family.dialect import KERNEL
from luminal.codegen.c_family.kernel import Spelled
from luminal.codegen.c_family.persistent import Together, spell_tiles_together
from luminal.kernel.boxes import Tensor
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
FINAL = (
    "ILLEGAL_ADDRESS", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "ASSERT", "HARDWARE_STACK_ERROR",
    "ILLEGAL_INSTRUCTION", "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "INVALID_PC",
    "ECC_UNCORRECTABLE", "CONTEXT_IS_DESTROYED", "DEVICE_UNAVAILABLE",
)  # fmt: skip
"""What CUDA answers to every call from then on."""
GROUP = 128  # threads of a group: four warps, one for each scheduler of a multiprocessor
GROUPS = 8  # of a multiprocessor, where each thread is a worker: half of the threads it holds


class _Reported:
    """A `with` in which the device is this thread's, and what it reports is a DeviceError."""

    __slots__ = ("_driver", "_what")

    def __init__(self, driver: CudaDriver, what: str) -> None:
        self._driver, self._what = driver, what

    def __enter__(self) -> None:
        self._driver.device.set_current()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if type(error).__name__ != "CUDAError":  # which cuda-core does not export
            return
        words = f"{self._driver.name}: {self._what}: {error}"
        if any(name in words for name in FINAL):
            words += "; this process can use the device no longer, a new one can"
        raise DeviceError(words) from None


class CudaRecording:
    """A graph, captured from a stream of its own."""

    def __init__(self, driver: CudaDriver, graph: Graph, staged: tuple[Array, Array]) -> None:
        self._driver, self._graph = driver, graph
        self._staged = staged  # the graph has their addresses

    def run(self) -> None:
        """Queues all of the recorded run, by one call."""
        with self._driver._reported("launch of a graph"):
            self._graph.launch(self._driver.stream)


class CudaDriver(LtDriver):
    """The device `cuda:number`; `spell` makes CUDA C++ of kernels."""

    def __init__(self, spell: Callable[[Kernel], Spelled], number: int = 0) -> None:
        self.name = f"cuda:{number}"
        self.spell = spell
        self.device = Device(number)
        self.device.set_current()
        self.architecture = chips.architecture(int(self.device.arch))
        self.is_chained = int(self.device.arch) >= chips.CHAINED
        self.units = self.device.properties.multiprocessor_count
        self.groups = self.units * GROUPS
        self.workers = self.groups * GROUP
        self.most_lanes = self.device.properties.max_threads_per_block
        self.stream = self.device.create_stream()
        self.dlpack_device = dlpack_device.CUDA, number
        self.stream_number: int = int(self.stream.handle)
        self._event: Any = None  # between our stream and those of others
        self._maps: dict[tuple[int, Tensor], DevicePointer] = {}  # of tensors at addresses

    goes_by_address = True
    warp = 32

    def address(self, place: DevicePointer) -> int:
        return _address(place)

    def block_at(self, address: int, size: int) -> DeviceBlock:
        return Buffer.from_handle(address, size)

    def follow(self, queue: int) -> None:
        self._order(queue, self.stream_number)

    def precede(self, queue: int) -> None:
        self._order(self.stream_number, queue)

    def _order(self, first: int, second: int) -> None:
        """What the second stream is given from now on waits for what the first was given by now."""
        with self._reported("wait between streams"):
            queues = self.queues()
            # A wait is for what was recorded last when it is queued, so one event serves all.
            self._event = self._event or queues.event()
            queues.record(self._event, first)
            queues.follow(self._event, second)

    has_library = True

    def library(self) -> Library:
        """NCCL for this device, by nccl4py."""
        from luminal.backends.cuda import nccl  # late: an extra

        return nccl.library(self.device)

    def queues(self) -> CudaQueues:
        return CudaQueues(self.name)

    def card(self) -> str:
        return f"card {self.device.uuid}"

    def expect(self, collectives: int) -> None:
        with self._reported("collective"):
            super().expect(collectives)

    def exchange(self, exchange: Exchange) -> None:
        with self._reported("collective"):
            super().exchange(exchange)

    def is_reached(self, mark: Mark) -> bool:
        with self._reported("wait"):
            return bool(mark.is_done)

    def memory(self) -> DeviceMemory:
        with self._reported("memory"):
            status, free, total = cuda.cuMemGetInfo()
            return DeviceMemory(total, free) if status == 0 else DeviceMemory(None, None)

    def allocate(self, size: int) -> DeviceBlock:
        try:
            with self._reported("allocate"):
                return self.device.allocate(size, stream=self.stream)
        except DeviceError as error:
            if "OUT_OF_MEMORY" not in str(error):
                raise
            raise MemoryError(
                f"{self.name}: cannot allocate {size} bytes; {self.memory().free} are free"
            ) from None

    def free(self, block: DeviceBlock) -> None:
        with self._reported("free"):
            block.close(self.stream)

    def write(self, target: DevicePointer, source: Array) -> None:
        self._copy("write", _host(source), _part(target, source.nbytes))

    def read(self, source: DevicePointer, target: Array) -> None:
        self.fetch(source, target)
        self.wait()

    def fetch(self, source: DevicePointer, target: Array) -> None:
        self._copy("read", _part(source, target.nbytes), _host(target))

    def copy(self, source: DevicePointer, target: DevicePointer, size: int) -> None:
        self._copy("copy", _part(source, size), _part(target, size))

    def _copy(self, what: str, source: Buffer, target: Buffer) -> None:
        if source.size:
            with self._reported(what):
                target.copy_from(source, stream=self.stream)

    def staging(self, size: int) -> Array:
        """Pinned memory, which the device copies without the host's help."""
        with self._reported("allocate"):
            buffer = LegacyPinnedMemoryResource().allocate(max(1, size))
        held = (ctypes.c_uint8 * size).from_address(int(buffer.handle))
        held.owner = buffer  # type: ignore[attr-defined]  # lives as long as arrays over it
        return np.frombuffer(memoryview(held), np.uint8)

    def record(
        self,
        sent: tuple[Array, DevicePointer],
        calls: Sequence[Call | Exchange],
        taken: tuple[DevicePointer, Array],
    ) -> CudaRecording:
        with self._reported("record"):
            builder = self.device.create_graph_builder().begin_building()
            (source, target), (result, into) = sent, taken
            if source.nbytes:
                _part(target, source.nbytes).copy_from(_host(source), stream=builder)
            stream = int(builder.stream.handle)
            for call in calls:
                if not isinstance(call, Call):
                    self.put_beside(call, stream)
                elif call.code.lanes:
                    self._launch(builder, call)
                else:
                    self.queue_product(call, stream)
            if meets(calls):
                self.side.join(stream)
            if into.nbytes:
                _host(into).copy_from(_part(result, into.nbytes), stream=builder)
            graph = builder.end_building().complete()
            return CudaRecording(self, graph, (source, into))

    def compile(self, kernel: Kernel, text: str) -> CCode:
        return self._loaded(CCode, self.spell(kernel))

    def together(self, kernels: Sequence[Kernel]) -> CTogether:
        return self._loaded(CTogether, spell_tiles_together(kernels, CUDA))

    def _loaded(self, kind: Callable[[Any, Any], AnyCode], spelled: Spelled | Together) -> AnyCode:
        """The code of a text, on the device."""
        with self._reported("load"):
            module = ObjectCode.from_cubin(self._cubin(spelled.text))
            code = kind(spelled, module.get_kernel(KERNEL))
            if code.dynamic_bytes:
                self._allow(code)
            return code

    def _allow(self, code: CCode) -> None:
        """Has the device give groups as much of their own memory as the kernel needs. Raises
        CompileError where it has not.
        """
        kind = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        size, device = code.dynamic_bytes, int(self.device.device_id)
        (status,) = cuda.cuKernelSetAttribute(kind, size, code.handle.handle, device)
        if status:
            raise CompileError(
                f"{self.name}: groups of a kernel need {size} bytes of shared memory; the device "
                f"gives less ({status.name}): schedule the kernel for this device"
            )

    def workers_of(self, code: Any) -> int:
        """The groups that multiprocessors hold at once, by the code's registers and memory."""
        if code.lanes == 1:
            return self.workers
        with self._reported("occupancy"):
            occupancy = code.handle.occupancy
            size = code.dynamic_bytes
            held = int(occupancy.max_active_blocks_per_multiprocessor(code.lanes, size))
        units, cluster = int(self.units), int(code.cluster)
        return max(1, units * max(1, held) // cluster) * cluster

    def _cubin(self, text: str) -> bytes:
        objects = object_cache.default()
        key = object_cache.key(text, self.architecture, nvrtc.version(), *nvrtc.OPTIONS)
        code = objects.get(key)
        if code is None:
            with tracing.span("compile"):
                code = nvrtc.compile(text, self.architecture).code
            objects.put(key, code)
        return code

    # Recorded launches have the addresses of maps, so these stay.
    def with_maps(self, code: Any, operands: Sequence[DevicePointer]) -> Sequence[DevicePointer]:
        maps = code.maps if code.lanes else ()
        return [*operands, *(self._map(tensor, operands[number]) for number, tensor in maps)]

    def _map(self, tensor: Tensor, place: DevicePointer) -> DevicePointer:
        """The tensor map of a tensor at a place, which is made once."""
        key = _address(place), replace(tensor, source="")
        if key not in self._maps:
            words = encoded(tensor, key[0])
            self._maps[key] = block = DevicePointer(self.allocate(words.nbytes))
            self.write(block, words)
        return self._maps[key]

    def enqueue(
        self,
        code: Any,
        workers: int,
        operands: Sequence[DevicePointer],
        integers: DevicePointer | None,
        scratch: DevicePointer | None,
    ) -> None:
        with self._reported("launch"):
            self._launch(self.stream, Call(code, workers, operands, integers, scratch))

    def _launch(self, stream: Stream | GraphBuilder, call: Call) -> None:
        code, workers, operands, integers, scratch, _ = call
        places = [_address(operand) for operand in operands]
        places.append(0 if scratch is None else _address(scratch))
        if integers is not None:
            places.append(_address(integers))
        groups, threads = launch_shape(code, workers, GROUP, scratch)
        is_together = type(code) is CTogether  # its groups wait for each other
        config = LaunchConfig(
            grid=groups // code.cluster,
            cluster=code.cluster if code.cluster > 1 else None,
            block=threads,
            shmem_size=code.dynamic_bytes,
            is_cooperative=is_together,
            programmatic_stream_serialization=self.is_chained and not is_together,
        )
        launch(stream, config, code.handle, *places)

    def opened(self) -> Lt:
        from luminal.backends.cuda import cublaslt  # late: it is large

        with self._reported("load"):
            return cublaslt.opened()

    def call_library(self, call: Call) -> None:
        with self._reported("product"):
            super().call_library(call)

    def wait(self, mark: Mark | None = None) -> None:
        with self._reported("wait"):
            self.stream.sync() if mark is None else mark.sync()

    def mark(self) -> Mark:
        with self._reported("mark"):
            return self.stream.record(options=EventOptions(timing_enabled=True))

    def seconds(self, first: Mark, last: Mark) -> float:
        with self._reported("wait"):
            last.sync()
            return float(last - first) * 1e-3

    def _reported(self, what: str) -> _Reported:
        return _Reported(self, what)


def _address(place: DevicePointer) -> int:
    return int(place.block.handle) + place.offset


def _part(place: DevicePointer, size: int) -> Buffer:
    """Bytes of a block. A place knows no size, so the driver checks that they are there."""
    return Buffer.from_handle(_address(place), size)


def _host(array: Array) -> Buffer:
    assert array.flags.c_contiguous
    return Buffer.from_handle(array.ctypes.data, array.nbytes)

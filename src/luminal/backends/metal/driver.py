"""One Metal device as a Driver: a queue of command buffers, shared memory, pipelines.

What is queued goes into one command buffer, which is handed to the device when its time is noted or
somebody waits. Its encoders run one after the other, as do a queue's command buffers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from luminal.backends.c_backend import CCode
from luminal.backends.metal import presence, shaders
from luminal.backends.metal.recording import Copied, MetalRecording, places, recorded
from luminal.base import tracing
from luminal.base.errors import CompileError
from luminal.codegen.c_family.dialect import KERNEL
from luminal.codegen.c_family.kernel import Spelled
from luminal.hlir.library_product import LibraryProduct
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.driver import (
    Array,
    Call,
    DeviceBlock,
    DeviceError,
    DeviceMemory,
    DevicePointer,
    Driver,
    Mark,
    launch_shape,
)
from luminal.runtime.exchange import Exchange
from luminal.runtime.library_code import LibraryCode
from luminal.shape.expression import ZERO

GROUP = 128  # threads of a group: four SIMD groups
WORKERS = 1 << 14  # Metal does not tell the cores: enough for the 80 of the largest chips
SHARED = 0  # MTLResourceStorageModeShared: of the device and the host


class MetalDriver(Driver):
    """The device `metal:number`; `spell` makes Metal of kernels. Not yet run on a Mac."""

    workers = WORKERS
    groups = WORKERS // GROUP
    most_lanes = 1024  # as all of Apple's GPUs; a pipeline may have fewer

    def __init__(self, spell: Callable[[Kernel], Spelled], number: int = 0) -> None:
        self.name = f"metal:{number}"
        self.spell = spell
        self.metal = presence.bindings()
        self.device = presence.devices()[number]
        self.queue = self.device.newCommandQueue()
        self.open: Any = None
        self.handed: list[Any] = []
        self._staged: dict[int, Any] = {}  # by the address of the host's array

    def memory(self) -> DeviceMemory:
        total, used = self.device.recommendedMaxWorkingSetSize(), self.device.currentAllocatedSize()
        return DeviceMemory(total, total - used)

    def allocate(self, size: int) -> DeviceBlock:
        block = self.device.newBufferWithLength_options_(size, SHARED)
        if block is None:
            raise MemoryError(
                f"{self.name}: cannot allocate {size} bytes; {self.memory().free} are free, and it "
                f"gives at most {self.device.maxBufferLength()} at once"
            )
        return block

    def free(self, block: DeviceBlock) -> None:
        """Command buffers hold what they use, as Python does what it knows."""

    def write(self, target: DevicePointer, source: Array) -> None:
        if source.nbytes:
            data = source.tobytes()
            staged = self.device.newBufferWithBytes_length_options_(data, len(data), SHARED)
            if staged is None:
                raise MemoryError(f"{self.name}: cannot write {len(data)} bytes at once")
            self.copy(DevicePointer(staged), target, len(data))

    def read(self, source: DevicePointer, target: Array) -> None:
        self.wait()
        if target.nbytes:
            held = source.block.contents().as_buffer(source.block.length())
            part = np.frombuffer(held, np.uint8)[source.offset : source.offset + target.nbytes]
            target.reshape(-1).view(np.uint8)[:] = part

    def copy(self, source: DevicePointer, target: DevicePointer, size: int) -> None:
        if size:
            encoder = self.commands().blitCommandEncoder()
            encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
                source.block, source.offset, target.block, target.offset, size
            )
            encoder.endEncoding()

    def compile(self, kernel: Kernel, text: str) -> CCode:
        spelled = self.spell(kernel)
        options = self.metal.MTLCompileOptions.new()
        options.setFastMathEnabled_(False)
        with tracing.span("compile"):  # macOS keeps a cache of its own
            library, error = self.device.newLibraryWithSource_options_error_(
                spelled.text, options, None
            )
            if library is None:
                raise CompileError(f"Metal refuses a kernel:\n{error}\n{spelled.text}")
            function = library.newFunctionWithName_(KERNEL)
            pipeline, error = self._pipeline(function)
        if pipeline is None:
            raise CompileError(f"Metal refuses a kernel:\n{error}\n{spelled.text}")
        most = pipeline.maxTotalThreadsPerThreadgroup()
        if spelled.lanes > most:
            raise CompileError(
                f"{self.name}: a kernel by groups of {spelled.lanes} lanes, of which its registers "
                f"leave room for {most}: schedule it by smaller groups"
            )
        return CCode(spelled, pipeline)

    def enqueue(
        self,
        code: Any,
        workers: int,
        operands: Sequence[DevicePointer],
        integers: DevicePointer | None,
        scratch: DevicePointer | None,
    ) -> None:
        call = Call(code, workers, operands, integers, scratch)
        encoder = self.commands().computeCommandEncoder()
        encoder.setComputePipelineState_(code.handle)
        for number, place in enumerate(places(call)):
            encoder.setBuffer_offset_atIndex_(place.block, place.offset, number)
        encoder.dispatchThreadgroups_threadsPerThreadgroup_(*self.shape(call))
        encoder.endEncoding()

    def product(self, product: LibraryProduct) -> LibraryCode:
        shaders.bindings()
        return LibraryCode(product, ZERO)

    def call_library(self, call: Call) -> None:
        shaders.encode(self.device, self.commands(), call)

    def shape(self, call: Call) -> tuple[Any, Any]:
        """How many groups a launch has, and threads in each, as Metal takes them."""
        most = min(GROUP, call.code.handle.maxTotalThreadsPerThreadgroup())
        groups, threads = launch_shape(call.code, call.workers, most, call.scratch)
        size = self.metal.MTLSizeMake
        return size(groups, 1, 1), size(threads, 1, 1)

    # Memory is the device's and the host's, so what is staged is copied by the device, in order
    # with launches.
    def staging(self, size: int) -> Array:
        block = self.allocate(max(1, size))
        array = np.frombuffer(block.contents().as_buffer(block.length()), np.uint8)[:size]
        self._staged[array.ctypes.data] = block
        weakref.finalize(array, self._staged.pop, array.ctypes.data, None)
        return array

    def record(
        self,
        sent: tuple[Array, DevicePointer],
        calls: Sequence[Call | Exchange],
        taken: tuple[DevicePointer, Array],
    ) -> MetalRecording | None:
        launches = [call for call in calls if isinstance(call, Call)]  # there are no collectives
        if not all(call.code.lanes for call in launches):
            return None  # an indirect command buffer has no place for a library's product
        commands = recorded(self, launches)
        if commands is None:
            return None
        (source, target), (result, into) = sent, taken
        before = Copied(self._place(source), target, source.nbytes)
        after = Copied(result, self._place(into), into.nbytes)
        return MetalRecording(self, commands, launches, before, after)

    def _place(self, staged: Array) -> DevicePointer:
        """Where an array of `staging` lies, from its first byte; of none, nowhere."""
        return DevicePointer(self._staged[staged.ctypes.data] if staged.nbytes else None)

    def _pipeline(self, function: Any) -> tuple[Any, Any]:
        """The pipeline of a function, which recordings may use too, or what is wrong with it."""
        descriptor = self.metal.MTLComputePipelineDescriptor.new()
        descriptor.setComputeFunction_(function)
        descriptor.setSupportIndirectCommandBuffers_(True)
        make = self.device.newComputePipelineStateWithDescriptor_options_reflection_error_
        pipeline, _, error = make(descriptor, 0, None, None)
        return pipeline, error

    def wait(self, mark: Mark | None = None) -> None:
        self._hand_over()
        count = len(self.handed) if mark is None else self._until(mark)
        handed, self.handed = self.handed[:count], self.handed[count:]
        for commands in handed:
            commands.waitUntilCompleted()
            if commands.error() is not None:
                raise DeviceError(f"{self.name}: {commands.error()}")

    def _until(self, mark: Mark) -> int:
        """The command buffers that were handed over up to a mark and not waited for."""
        places = (n for n, commands in enumerate(self.handed, 1) if commands is mark)
        return next(places, 0)

    def mark(self) -> Mark:
        self.commands()
        return self._hand_over()

    def seconds(self, first: Mark, last: Mark) -> float:
        last.waitUntilCompleted()
        return float(last.GPUEndTime() - first.GPUEndTime())

    def commands(self) -> Any:
        """The command buffer that takes what is queued next."""
        if self.open is None:
            self.open = self.queue.commandBuffer()
        return self.open

    def _hand_over(self) -> Any:
        """Lets the device begin with what was queued; the command buffer that held it."""
        commands, self.open = self.open, None
        if commands is not None:
            commands.commit()
            self.handed.append(commands)
        return commands

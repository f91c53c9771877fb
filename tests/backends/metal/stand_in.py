"""A module that stands in for pyobjc's Metal: its device is the CPU, its kernels run checked.

As on a Mac nothing runs before its command buffer was committed and somebody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from luminal.codegen.c_family.dialect import KERNEL
from tests.simt.compiling import TextError, compile
from tests.simt.launching import At, DeviceFault, launch

MEMORY = 1 << 30
BUFFERS = 31  # that a kernel may have
DISPATCH = 1 << 5  # MTLIndirectCommandTypeConcurrentDispatch
MTLCompileOptions = SimpleNamespace(new=lambda: SimpleNamespace(setFastMathEnabled_=bool))


def MTLSizeMake(*shape: int) -> tuple[int, ...]:
    return shape


class Buffer:
    def __init__(self, size: int) -> None:
        self.bytes = np.full(size, 0xCB, np.uint8)

    def length(self) -> int:
        return len(self.bytes)

    def contents(self) -> Any:
        return SimpleNamespace(as_buffer=lambda size: memoryview(self.bytes)[:size])


class Encoder:
    """Either kind."""

    def __init__(self, work: list[Callable[[], None]]) -> None:
        self.work = work
        self.arguments: dict[int, Any] = {}
        self.used: list[Buffer] = []

    def copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(
        self, source: Buffer, start: int, target: Buffer, to: int, size: int
    ) -> None:
        if start + size > source.length() or to + size > target.length():
            raise ValueError("a copy beyond a buffer")

        def run() -> None:
            target.bytes[to : to + size] = source.bytes[start : start + size]

        self.work.append(run)

    def setComputePipelineState_(self, pipeline: Any) -> None:
        self.module = pipeline.module

    def setBuffer_offset_atIndex_(self, buffer: Buffer | None, offset: int, index: int) -> None:
        memory = np.zeros(0, np.uint8) if buffer is None else buffer.bytes
        self.arguments[index] = At(memory, offset)

    def setBytes_length_atIndex_(self, data: bytes, size: int, index: int) -> None:
        self.arguments[index] = np.frombuffer(data[:size], np.uint8).copy()

    def dispatchThreadgroups_threadsPerThreadgroup_(self, groups: Any, threads: Any) -> None:
        arguments = [self.arguments[n] for n in range(len(self.arguments))]
        self.work.append(lambda: launch(self.module, KERNEL, groups, threads, arguments))

    def useResource_usage_(self, buffer: Buffer, usage: int) -> None:
        assert usage == 3  # it is read and written
        self.used.append(buffer)

    def executeCommandsInBuffer_withRange_(
        self, commands: IndirectCommandBuffer, span: tuple[int, int]
    ) -> None:
        if span != (0, len(commands.commands)):
            raise ValueError(f"commands {span} of {len(commands.commands)}")
        used = list(self.used)
        self.work.append(lambda: commands.run(used))

    def endEncoding(self) -> None:
        pass


class Descriptor(SimpleNamespace):
    """What is set of an object before it is made: `setName_(value)`."""

    @classmethod
    def new(cls) -> Descriptor:
        return cls()

    def __getattr__(self, name: str) -> Any:
        if not (name.startswith("set") and name.endswith("_")):
            raise AttributeError(name)
        return lambda value: setattr(self, name[3:-1], value)


class MTLIndirectCommandBufferDescriptor(Descriptor):
    """What an indirect command buffer will hold."""


class MTLComputePipelineDescriptor(Descriptor):
    """What a pipeline is made of."""


class IndirectCommand:
    """A launch, refused where Metal's rules are broken."""

    def __init__(self, buffers: int) -> None:
        self.most = buffers
        self.pipeline: Any = None
        self.shape: tuple[Any, Any] | None = None
        self.is_barrier = False
        self.bound: dict[int, tuple[Buffer, int]] = {}

    def setComputePipelineState_(self, pipeline: Any) -> None:
        if not pipeline.is_for_indirect:
            raise ValueError("the pipeline does not support indirect command buffers")
        self.pipeline = pipeline

    def setKernelBuffer_offset_atIndex_(self, buffer: Buffer, offset: int, index: int) -> None:
        if not 0 <= index < self.most:
            raise ValueError(f"buffer {index} of a command that has {self.most}")
        if not isinstance(buffer, Buffer) or not 0 <= offset <= buffer.length():
            raise ValueError("no place in a buffer")
        self.bound[index] = buffer, offset

    def setBarrier(self) -> None:
        self.is_barrier = True

    def concurrentDispatchThreadgroups_threadsPerThreadgroup_(
        self, groups: Any, threads: Any
    ) -> None:
        if self.pipeline is None:
            raise ValueError("a launch before its pipeline is set")
        self.shape = groups, threads

    def run(self) -> None:
        assert self.shape is not None
        count = max(self.bound) + 1
        nothing = np.zeros(0, np.uint8), 0
        places = [self.bound.get(n) for n in range(count)]
        at = [At(*((place[0].bytes, place[1]) if place else nothing)) for place in places]
        launch(self.pipeline.module, KERNEL, *self.shape, at)


class IndirectCommandBuffer:
    """So many commands. Those with no barrier between them run in any order: from the last."""

    def __init__(self, descriptor: Any, count: int) -> None:
        if descriptor.CommandTypes != DISPATCH or not 0 < count <= 16384:
            raise ValueError("no such commands, or too many")
        if descriptor.InheritBuffers or descriptor.InheritPipelineState:
            raise ValueError("commands with their own buffers and pipelines inherit none")
        if not 0 < descriptor.MaxKernelBufferBindCount <= BUFFERS:
            raise ValueError(f"{descriptor.MaxKernelBufferBindCount} buffers of {BUFFERS}")
        most = descriptor.MaxKernelBufferBindCount
        self.commands = [IndirectCommand(most) for _ in range(count)]

    def indirectComputeCommandAtIndex_(self, number: int) -> IndirectCommand:
        return self.commands[number]

    def run(self, used: list[Buffer]) -> None:
        for command in self.commands:
            if command.shape is None:
                raise DeviceFault("a command that was never set")
            for buffer, _ in command.bound.values():
                if not any(buffer is other for other in used):
                    raise DeviceFault("a command's buffer is not resident: nobody uses it")
        apart: list[IndirectCommand] = []
        for command in [*self.commands, None]:
            if command is None or command.is_barrier:
                for free in reversed(apart):
                    free.run()
                apart = []
            if command is not None:
                apart.append(command)


class CommandBuffer:
    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.fault: str | None = None
        self.is_committed = False
        self.end = 0.0

    def computeCommandEncoder(self) -> Encoder:
        return Encoder(self.work)

    blitCommandEncoder = computeCommandEncoder

    def commit(self) -> None:
        self.is_committed = True

    def waitUntilCompleted(self) -> None:
        assert self.is_committed
        if not self.end:
            try:
                for run in self.work:
                    run()
            except DeviceFault as fault:
                self.fault = str(fault)
            self.end = time.perf_counter()

    def error(self) -> str | None:
        return self.fault

    def GPUEndTime(self) -> float:
        return self.end


class Queue:
    """Its command buffers complete in order."""

    def __init__(self) -> None:
        self.buffers: list[CommandBuffer] = []

    def commandBuffer(self) -> Any:
        made, before = CommandBuffer(), list(self.buffers)
        self.buffers.append(made)
        own = made.waitUntilCompleted

        def wait() -> None:
            for each in before:
                CommandBuffer.waitUntilCompleted(each)
            own()

        made.waitUntilCompleted = wait  # type: ignore[method-assign]
        return made


class Device:
    def newCommandQueue(self) -> Queue:
        return Queue()

    def recommendedMaxWorkingSetSize(self) -> int:
        return MEMORY

    def supportsFamily_(self, family: int) -> bool:
        return family <= 1008  # MTLGPUFamilyApple8

    def maxThreadgroupMemoryLength(self) -> int:
        return 32 << 10

    def currentAllocatedSize(self) -> int:
        return 0

    def maxBufferLength(self) -> int:
        return MEMORY

    def newBufferWithLength_options_(self, size: int, options: int) -> Buffer | None:
        assert options == 0
        return Buffer(size) if size <= MEMORY else None

    def newBufferWithBytes_length_options_(self, data: bytes, size: int, options: int) -> Any:
        made = self.newBufferWithLength_options_(size, options)
        if made is not None:
            made.bytes[:] = np.frombuffer(data, np.uint8)
        return made

    def newLibraryWithSource_options_error_(self, text: str, options: Any, error: None) -> Any:
        try:
            module = compile(text, "metal")
        except TextError as refused:
            return None, str(refused)
        return SimpleNamespace(newFunctionWithName_=lambda name: module), None

    def newComputePipelineStateWithDescriptor_options_reflection_error_(
        self, descriptor: Any, options: int, reflection: None, error: None
    ) -> Any:
        assert options == 0
        pipeline = SimpleNamespace(
            module=descriptor.ComputeFunction,
            maxTotalThreadsPerThreadgroup=lambda: 1024,
            is_for_indirect=getattr(descriptor, "SupportIndirectCommandBuffers", False),
        )
        return pipeline, None, None

    def newIndirectCommandBufferWithDescriptor_maxCommandCount_options_(
        self, descriptor: Any, count: int, options: int
    ) -> IndirectCommandBuffer:
        assert options == 0
        return IndirectCommandBuffer(descriptor, count)


def MTLCopyAllDevices() -> list[Device]:
    return [Device()]

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

    def endEncoding(self) -> None:
        pass


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
        pipeline = SimpleNamespace(module=module, maxTotalThreadsPerThreadgroup=lambda: 1024)
        return SimpleNamespace(newFunctionWithName_=lambda name: pipeline), None

    def newComputePipelineStateWithFunction_error_(self, function: Any, error: None) -> Any:
        return function, None


def MTLCopyAllDevices() -> list[Device]:
    return [Device()]

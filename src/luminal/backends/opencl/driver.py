"""One OpenCL device as a Driver: an in-order queue, buffers, and launches of kernels in C."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyopencl as cl

from luminal.backends.c_backend import CCode
from luminal.backends.opencl import platforms, programs
from luminal.backends.opencl.builder import builder
from luminal.backends.opencl.facts import Facts
from luminal.base.dtypes import float64
from luminal.base.errors import CompileError
from luminal.codegen.c_family.kernel import Spelled
from luminal.kernel.tile_ir import Kernel
from luminal.runtime.driver import (
    Array,
    DeviceBlock,
    DeviceError,
    DeviceMemory,
    DevicePointer,
    Driver,
    Mark,
    launch_shape,
)

NOWHERE = DevicePointer(None)


class OpenClDriver(Driver):
    """The device `opencl:number`, of those `platforms` finds; `spell` makes OpenCL C of kernels."""

    def __init__(self, spell: Callable[[Kernel], Spelled], number: int = 0) -> None:
        self.name = f"opencl:{number}"
        self.spell = spell
        self.device = platforms.devices()[number]
        self.facts = Facts.of(self.device)
        self.groups, self.workers = self.facts.groups, self.facts.groups * self.facts.group
        self.most_lanes = self.device.max_work_group_size
        with platforms.ignored_signals_kept():
            self.context = cl.Context([self.device])
        self.builder = builder(number) if platforms.is_built_apart(self.device) else None
        timed = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(self.context, properties=timed)

    def memory(self) -> DeviceMemory:
        return DeviceMemory(self.device.global_mem_size, None)

    def allocate(self, size: int) -> DeviceBlock:
        try:
            return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, size)
        except cl.Error as error:
            largest = self.device.max_mem_alloc_size
            raise MemoryError(
                f"{self.name}: cannot allocate {size} bytes ({error}); it gives at most {largest} "
                "at once"
            ) from None

    def free(self, block: DeviceBlock) -> None:
        block.release()

    def write(self, target: DevicePointer, source: Array) -> None:
        if source.nbytes:
            with self._reported("write"):
                cl.enqueue_copy(
                    self.queue, target.block, _bytes(source), dst_offset=target.offset
                )  # waits: the caller may change the array

    def read(self, source: DevicePointer, target: Array) -> None:
        if not target.nbytes:
            self.wait()
            return
        with self._reported("read"):
            cl.enqueue_copy(self.queue, _bytes(target), source.block, src_offset=source.offset)

    def fetch(self, source: DevicePointer, target: Array) -> None:
        if target.nbytes:
            with self._reported("read"):
                cl.enqueue_copy(
                    self.queue, _bytes(target), source.block,
                    src_offset=source.offset, is_blocking=False,
                )  # fmt: skip

    def copy(self, source: DevicePointer, target: DevicePointer, size: int) -> None:
        if size:
            with self._reported("copy"):
                cl.enqueue_copy(
                    self.queue, target.block, source.block,
                    src_offset=source.offset, dst_offset=target.offset, byte_count=size,
                )  # fmt: skip

    def compile(self, kernel: Kernel, text: str) -> CCode:
        spelled = self.spell(kernel)
        if float64 in spelled.dtypes and not self.facts.has_double:
            raise CompileError(
                f"{self.name}: {self.facts.name} computes no f64; cast to f32, or use backend 'cpu'"
            )
        built = programs.load(self.context, self.device, self.facts, spelled.text, self.builder)
        count = len(kernel.buffers) + (2 if kernel.params else 1)
        built.set_scalar_arg_dtypes([None, np.int64] * count)
        return CCode(spelled, built)

    def enqueue(
        self,
        code: Any,
        workers: int,
        operands: Sequence[DevicePointer],
        integers: DevicePointer | None,
        scratch: DevicePointer | None,
    ) -> None:
        places = [*operands, scratch or NOWHERE, *([integers] if integers else ())]
        memory = [part for place in places for part in place]
        groups, threads = launch_shape(code, workers, self.facts.group, scratch)
        with self._reported("launch"):
            code.handle.set_args(*memory)
            cl.enqueue_nd_range_kernel(self.queue, code.handle, (groups * threads,), (threads,))

    def wait(self, mark: Mark | None = None) -> None:
        with self._reported("wait"):
            self.queue.finish() if mark is None else mark.wait()

    def mark(self) -> Mark:
        return cl.enqueue_marker(self.queue)

    def seconds(self, first: Mark, last: Mark) -> float:
        with self._reported("wait"):
            last.wait()
        return float(last.profile.end - first.profile.end) * 1e-9

    @contextmanager
    def _reported(self, what: str) -> Iterator[None]:
        try:
            yield
        except cl.Error as error:
            raise DeviceError(f"{self.name}: {what}: {error}") from None


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)

"""Streams of CUDA beside the one that kernels run in, by number, and events between them."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda

from luminal.base.errors import DeviceError
from luminal.runtime.driver import Array
from luminal.runtime.side_queue import Queues


class CudaQueues(Queues):
    """Streams of the device that is current; `name` is its own. They are never closed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def queue(self) -> int:
        flags = cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
        return int(self._do("stream", cuda.cuStreamCreateWithPriority(flags, 0)))

    def event(self) -> Any:
        flags = cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING
        return self._do("event", cuda.cuEventCreate(flags))

    def record(self, event: Any, queue: int) -> None:
        self._do("event", cuda.cuEventRecord(event, queue))

    def follow(self, event: Any, queue: int) -> None:
        self._do("wait for a stream", cuda.cuStreamWaitEvent(queue, event, 0))

    def copy(self, source: int, target: int, size: int, queue: int) -> None:
        if size:
            self._do("copy", cuda.cuMemcpyDtoDAsync(target, source, size, queue))

    def fetch(self, source: int, target: Array, queue: int) -> None:
        self._do("read", cuda.cuMemcpyDtoHAsync(target.ctypes.data, source, target.nbytes, queue))

    def clear(self, target: int, size: int, queue: int) -> None:
        self._do("clear", cuda.cuMemsetD8Async(target, 0, size, queue))

    def _do(self, what: str, answer: tuple[Any, ...]) -> Any:
        """What a function gives beside its status. Raises DeviceError with that by name."""
        status, *values = answer
        if status:
            raise DeviceError(f"{self._name}: {what}: {status.name}")
        return values[0] if values else None

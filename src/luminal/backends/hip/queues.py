"""Streams of HIP beside the one that kernels run in, by number, and events between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from luminal.runtime.driver import Array
from luminal.runtime.side_queue import Queues

TO_HOST, WITHIN = 2, 3  # hipMemcpyKind's


class HipQueues(Queues):
    """Streams of one device, whose driver calls functions by `do`. They live as long as the
    process.
    """

    def __init__(self, hip: Any, do: Callable[..., Any]) -> None:
        self._hip, self._do = hip, do

    def queue(self) -> int:
        return int(self._do(self._hip.hipStreamCreate))

    def event(self) -> Any:
        return self._do(self._hip.hipEventCreate)

    def record(self, event: Any, queue: int) -> None:
        self._do(self._hip.hipEventRecord, event, queue)

    def follow(self, event: Any, queue: int) -> None:
        self._do(self._hip.hipStreamWaitEvent, queue, event, 0)

    def copy(self, source: int, target: int, size: int, queue: int) -> None:
        if size:
            kind = self._hip.hipMemcpyKind(WITHIN)
            self._do(self._hip.hipMemcpyAsync, target, source, size, kind, queue)

    def fetch(self, source: int, target: Array, queue: int) -> None:
        kind = self._hip.hipMemcpyKind(TO_HOST)
        address, size = target.ctypes.data, target.nbytes
        self._do(self._hip.hipMemcpyAsync, address, source, size, kind, queue)

    def clear(self, target: int, size: int, queue: int) -> None:
        self._do(self._hip.hipMemsetAsync, target, 0, size, queue)

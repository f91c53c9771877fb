"""Devices for tests, and programs on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import luminal as lm
from luminal.backends.interpreted import backend
from luminal.backends.interpreted.driver import InterpretedDriver
from luminal.base.errors import LuminalError
from luminal.compiler.compile import lower_to_program
from luminal.hlir.graph import Graph
from luminal.runtime.device import Device
from luminal.runtime.device_runner import DeviceRunner
from luminal.runtime.driver import Array, DevicePointer
from luminal.runtime.executable import Executable
from luminal.runtime.variants import Variant


def _broken() -> None:
    raise LuminalError("this launch breaks")


class CountingDriver(InterpretedDriver):
    """Counts copies between host and device, and fails when it is told to."""

    def __init__(self, total: int = 1 << 30) -> None:
        super().__init__("counting", total)
        self.read_bytes = self.written_bytes = self.launches = 0
        self.fails_at = -1  # the launch that is refused,
        self.breaks_at = -1  # and the one that fails once it is its turn

    def write(self, target: DevicePointer, source: Array) -> None:
        self.written_bytes += source.nbytes
        super().write(target, source)

    def read(self, source: DevicePointer, target: Array) -> None:
        self.read_bytes += target.nbytes
        super().read(source, target)

    def fetch(self, source: DevicePointer, target: Array) -> None:
        self.read_bytes += target.nbytes
        super().fetch(source, target)

    def stage(self, source: Array, target: DevicePointer) -> None:
        self.written_bytes += source.nbytes
        super().stage(source, target)

    def enqueue(self, *arguments: Any) -> None:
        self.launches += 1
        if self.launches == self.fails_at:
            raise LuminalError("this launch fails")
        if self.launches == self.breaks_at:
            self._queue.append(_broken)
            return
        super().enqueue(*arguments)

    def fill(self, target: DevicePointer, size: int, pattern: bytes) -> None:
        written = self.written_bytes
        super().fill(target, size, pattern)
        self.written_bytes = written

    @property
    def used(self) -> int:
        """Bytes that are allocated."""
        self.wait()
        memory = self.memory()
        assert memory.total is not None
        assert memory.free is not None
        return memory.total - memory.free


def compiled_on(device: Device, graph: Graph | lm.Graph) -> Executable:
    """The executable of a graph there."""
    frozen = graph if isinstance(graph, Graph) else graph.graph()
    runner = DeviceRunner(lower_to_program(frozen, backend.current()), device)
    return Executable(frozen, [Variant({}, runner)])


def compiled(graph: Graph) -> Executable:
    """The executable of a graph on a device of its own."""
    return compiled_on(made()[0], graph)


def made() -> tuple[Device, CountingDriver]:
    """A device and its driver."""
    driver = CountingDriver()
    return Device(driver), driver


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    """Random numbers."""
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def accumulating(state: lm.State | lm.Parameter, shape: Sequence[int]) -> lm.Graph:
    """y = state * 2; state += x, where it lies."""
    cx = lm.Graph()
    x = cx.tensor(tuple(shape), name="x")
    held = cx.read(state) if isinstance(state, lm.State) else cx.weight_of(state)
    (held * 2).output("y")
    cx.assign(state, held + x)
    return cx


def turning(state: lm.State) -> lm.Graph:
    """state = state from back to front + x, through a second buffer; y = state before."""
    cx = lm.Graph()
    x = cx.tensor(state.shape, name="x")
    held = cx.read(state)
    (held * 1).output("y")
    cx.assign(state, held.flip(0) + x)
    return cx


def row_written(state: lm.State) -> lm.Graph:
    """state[at] = x, where it lies; y = the state after that, summed over its rows."""
    cx = lm.Graph()
    x = cx.tensor((state.shape[1],), name="x")
    at = cx.tensor((), lm.int32, name="at")
    after = cx.read(state).index_copy(0, at.reshape(1), x.reshape(1, -1))
    cx.assign(state, after)
    after.sum(0).output("y")
    return cx

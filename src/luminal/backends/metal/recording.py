"""Runs of Metal as one call: an indirect command buffer between two copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from luminal.runtime.driver import Call, DevicePointer

if TYPE_CHECKING:
    from luminal.backends.metal.driver import MetalDriver

DISPATCH = 1 << 5  # MTLIndirectCommandTypeConcurrentDispatch
READ_WRITE = 1 | 2  # MTLResourceUsageRead | MTLResourceUsageWrite
MOST = 16384  # commands of one indirect command buffer


class Copied(NamedTuple):
    """A copy of so many bytes from one place to another."""

    source: DevicePointer
    target: DevicePointer
    size: int


class MetalRecording:
    """Launches with all that they are told, and the copies before and after them."""

    def __init__(
        self, driver: MetalDriver, commands: Any, calls: Sequence[Call], before: Copied,
        after: Copied,
    ) -> None:  # fmt: skip
        self.driver, self.commands = driver, commands
        self.count, self.before, self.after = len(calls), before, after
        blocks = [
            place.block for call in calls for place in places(call) if place.block is not None
        ]
        self.blocks = [*{id(block): block for block in blocks if block is not None}.values()]

    def run(self) -> None:
        """Queues the copies and launches."""
        self.driver.copy(*self.before)
        encoder = self.driver.commands().computeCommandEncoder()
        # What commands reach through an indirect buffer Metal does not see by itself.
        for block in self.blocks:
            encoder.useResource_usage_(block, READ_WRITE)
        encoder.executeCommandsInBuffer_withRange_(self.commands, (0, self.count))
        encoder.endEncoding()
        self.driver.copy(*self.after)


def places(call: Call) -> list[DevicePointer]:
    """What a kernel's buffers are, in order of their numbers."""
    integers = (call.integers,) if call.integers else ()
    return [*call.operands, call.scratch or DevicePointer(None), *integers]


def recorded(driver: MetalDriver, calls: Sequence[Call]) -> Any:
    """The indirect command buffer of these launches, each after the one before; None where the
    device gives none.
    """
    if not 0 < len(calls) <= MOST:
        return None
    descriptor = driver.metal.MTLIndirectCommandBufferDescriptor.new()
    descriptor.setCommandTypes_(DISPATCH)
    descriptor.setInheritBuffers_(False)
    descriptor.setInheritPipelineState_(False)
    descriptor.setMaxKernelBufferBindCount_(max(len(places(call)) for call in calls))
    commands = driver.device.newIndirectCommandBufferWithDescriptor_maxCommandCount_options_(
        descriptor, len(calls), 0
    )
    if commands is None:
        return None
    for number, call in enumerate(calls):
        command = commands.indirectComputeCommandAtIndex_(number)
        command.setComputePipelineState_(call.code.handle)
        for index, place in enumerate(places(call)):
            if place.block is not None:
                command.setKernelBuffer_offset_atIndex_(place.block, place.offset, index)
        if number:
            command.setBarrier()
        groups, threads = driver.shape(call)
        command.concurrentDispatchThreadgroups_threadsPerThreadgroup_(groups, threads)
    return commands

"""The places of a kernel's scratch buffers in the working memory of a worker."""

from __future__ import annotations

from dataclasses import replace

from luminal.kernel.sort_memory import working_memory
from luminal.kernel.tile_ir import Buffer, Kernel, Space
from luminal.memory.alignment import ALIGNMENT
from luminal.shape.expression import ZERO, Expression, ceil_div


def scratch_buffers(kernel: Kernel) -> tuple[Buffer, ...]:
    """Working memory that is not shared memory, which lies elsewhere."""
    return tuple(buffer for buffer in kernel.scratch if buffer.space is Space.SCRATCH)


def scratch_offsets(kernel: Kernel) -> tuple[Expression, ...]:
    """The byte offset of each scratch buffer, in order, and last their total size."""
    offsets = [ZERO]
    for buffer in scratch_buffers(kernel):
        size = ceil_div(buffer.size * buffer.dtype.size, ALIGNMENT) * ALIGNMENT
        offsets.append(offsets[-1] + size)
    return tuple(offsets)


def with_sorting(kernel: Kernel) -> Kernel:
    """The kernel with the working memory that its expansion has, in which it sorts."""
    return replace(kernel, scratch=working_memory(kernel))


def scratch_bytes(kernel: Kernel) -> Expression:
    """The working memory of a worker, as the expanded kernel has it."""
    return scratch_offsets(with_sorting(kernel))[-1]

"""Where a kernel's scratch buffers lie in the working memory of a thread."""

from __future__ import annotations

from luminal.kernel.tile_ir import Kernel
from luminal.shape.expression import ZERO, Expression, ceil_div

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def scratch_offsets(kernel: Kernel) -> tuple[Expression, ...]:
    """The byte offset of each scratch buffer, in order, and last their total size."""
    offsets = [ZERO]
    for buffer in kernel.scratch:
        size = ceil_div(buffer.size * buffer.dtype.size, ALIGNMENT) * ALIGNMENT
        offsets.append(offsets[-1] + size)
    return tuple(offsets)

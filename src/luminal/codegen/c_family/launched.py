"""What a launch of a kernel needs: memory of its groups, what boxes are cut out of, clusters."""

from __future__ import annotations

from collections.abc import Sequence

from luminal.base.swizzles import SWIZZLES
from luminal.codegen.c_family.dialect import Dialect
from luminal.expand.ir import Commit, Copy, CopyBox, If, Kernel, Loop, Statement, memory_dtype
from luminal.kernel.boxes import Tensor
from luminal.kernel.tile_ir import Batch

SHARED_ALIGNMENT = 128  # bytes: of all banks of shared memory


def offsets_of(kernel: Kernel) -> list[int]:
    """Where each of a group's buffers begins, in bytes, then what goes with tensor memory, if it
    has some, and where the last one ends.
    """
    offsets, end = [], 0
    for buffer in kernel.shared:
        alignment = SHARED_ALIGNMENT
        if buffer.swizzle:
            alignment = max(alignment, SWIZZLES[buffer.swizzle].alignment)
        offsets.append(-(-end // alignment) * alignment)
        end = offsets[-1] + buffer.size.constant * memory_dtype(buffer.dtype).size
    offsets.append(-(-end // SHARED_ALIGNMENT) * SHARED_ALIGNMENT)
    return [*offsets, offsets[-1] + SHARED_ALIGNMENT] if kernel.tensor else offsets


def shared_bytes(kernel: Kernel) -> int:
    """The memory of a group, in bytes."""
    return offsets_of(kernel)[-1]


def dynamic_bytes(kernel: Kernel, dialect: Dialect) -> int:
    """The memory of a group that a launch of the kernel has to give."""
    size, static = shared_bytes(kernel), dialect.static_bytes
    is_swizzled = any(buffer.swizzle for buffer in kernel.shared)
    return size if static is not None and (size > static or is_swizzled) else 0


def tensors(kernel: Kernel) -> tuple[Tensor, ...]:
    """What a kernel's boxes are cut out of, each once."""
    boxes = (s for s in kernel.statements() if isinstance(s, CopyBox))
    return tuple(dict.fromkeys(box.tensor for box in boxes))


def fewest_copies(kernel: Kernel) -> int:
    """The copies that a batch has at least, of those that every lane makes."""
    batches: list[int] = []

    def walk(body: Sequence[Statement]) -> None:
        count = 0
        for statement in body:
            if isinstance(statement, Copy):
                count += 1
            elif isinstance(statement, Commit) and statement.of is Batch.COPIES:
                batches.append(count)
                count = 0
            elif isinstance(statement, Loop | If):
                walk(statement.body)

    walk(kernel.body)
    return min(batches, default=0)


def cluster_of(kernel: Kernel) -> int:
    """How many groups share boxes of a kernel; 1 where none do."""
    return max((s.parts for s in kernel.statements() if isinstance(s, CopyBox)), default=1)

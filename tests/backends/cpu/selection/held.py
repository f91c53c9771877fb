"""The values that a program holds in memory."""

from __future__ import annotations

import numpy as np

from luminal.program.buffers import BufferKind
from luminal.program.launch_list import Program


def held(program: Program) -> int:
    """Bytes between its kernels and inside of them."""
    arena = [b for b in program.buffers if b.kind is BufferKind.ARENA]
    sizes = [np.prod([int(e.evaluate({})) for e in b.shape]) * b.dtype.size for b in arena]
    scratch = [b for kernel in program.kernels for b in kernel.scratch]
    return int(sum(sizes)) + sum(int(b.size.evaluate({})) * b.dtype.size for b in scratch)

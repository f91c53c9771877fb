"""Which operands of kernels hold what no launch of their list writes: weights, literals.

Kernels are shared by launches, so a buffer of a kernel is constant where it is in all of them. What
runs before a list and not in it (copies of inputs, the prologue, other programs) is not asked: a
constant buffer may be fetched early, but not yet loaded.
"""

from __future__ import annotations

from dataclasses import replace

from luminal.kernel.tile_ir import Kernel, Role
from luminal.program.launch_list import Launch, Program, kernel_launches


def written(program: Program, launches: tuple[Launch, ...]) -> set[int]:
    """The buffers that launches of a list write."""
    accesses = (access for launch in launches for access in program.accesses(launch))
    return {buffer for buffer, role in accesses if role is not Role.IN}


def with_constants(program: Program) -> Program:
    """The program whose kernels, those of groups, know which of their buffers are constant."""
    changing: dict[int, set[int]] = {number: set() for number in range(len(program.kernels))}
    for launches in (program.prologue, program.launches):
        varying = written(program, launches)
        for launch in kernel_launches(launches):
            for place, operand in enumerate(launch.operands):
                if any(program.table[entry] in varying for entry in program.entries(operand)):
                    changing[launch.kernel].add(place)
    kernels = tuple(_marked(k, changing[n]) for n, k in enumerate(program.kernels))
    return replace(program, kernels=kernels)


def _marked(kernel: Kernel, changing: set[int]) -> Kernel:
    """The kernel whose buffers are constant but for those in these places."""
    if kernel.lanes == 1 or kernel.call is not None:
        return kernel
    buffers = tuple(
        replace(buffer, constant=buffer.role is Role.IN and place not in changing)
        for place, buffer in enumerate(kernel.buffers)
    )
    return replace(kernel, buffers=buffers)

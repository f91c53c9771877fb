"""Programs and launches written by hand."""

from __future__ import annotations

from luminal.base.dtypes import float32
from luminal.kernel.tile_ir import Buffer as KernelBuffer
from luminal.kernel.tile_ir import Kernel, Role, Space
from luminal.program.buffers import Buffer, BufferKind
from luminal.program.launch_list import KernelLaunch, Launch, Operand, Program
from luminal.shape.expression import const

SIZE = const(16)  # elements: one cache line


def kernel(*roles: Role) -> Kernel:
    buffers = tuple(
        KernelBuffer(f"x{k}", float32, SIZE, Space.GLOBAL, role) for k, role in enumerate(roles)
    )
    return Kernel((), buffers, (), (), ())


KERNELS = (
    kernel(Role.OUT),
    kernel(Role.IN, Role.OUT),
    kernel(Role.IN, Role.IN, Role.OUT),
    kernel(Role.INOUT),
)


def launch(*buffers: int | Operand, update: bool = False) -> KernelLaunch:
    """The last buffer is written, the others are read."""
    operands = tuple(b if isinstance(b, Operand) else Operand(b) for b in buffers)
    return KernelLaunch(3 if update else len(operands) - 1, operands, (), const(1), "step")


def program(count: int, *launches: Launch) -> Program:
    """`count` arena buffers."""
    buffers = tuple(Buffer(k, BufferKind.ARENA, float32, (SIZE,)) for k in range(count))
    return Program((), (), buffers, tuple(range(count)), KERNELS, (), launches, (), ())

"""Products of matrices by MPSMatrixMultiplication of Metal Performance Shaders, through pyobjc.

Not yet run on a Mac. A batch is encoded matrix by matrix, as its steps need not be those of whole
matrices.
"""

from __future__ import annotations

import platform
from typing import Any

from luminal.base import installation
from luminal.base.errors import CompileError
from luminal.hlir.library_product import Geometry, Steps
from luminal.runtime.driver import Call, DevicePointer

NAME = "MPSMatrixMultiplication"
LIBRARIES = ("mps",)
"""What target facts call it."""
FLOAT32 = 0x10000000 | 32  # MPSDataTypeFloat32
SIZE = 4  # bytes of an element
INITIALIZER = (
    "initWithDevice_transposeLeft_transposeRight_"
    "resultRows_resultColumns_interiorColumns_alpha_beta_"
)


def bindings() -> Any:
    """pyobjc's module. Raises CompileError where it is not installed."""
    try:
        import MetalPerformanceShaders
    except ImportError:
        raise CompileError(f"{NAME} is not installed; {installation.hint('metal')}") from None
    return MetalPerformanceShaders


def installed() -> tuple[str, ...]:
    """The libraries that kernels may call here, as target facts name them."""
    try:
        bindings()
    except CompileError:
        return ()
    return LIBRARIES


def version() -> str:
    """The version of macOS, with which it comes. Raises CompileError where it is not installed."""
    bindings()
    return f"of macOS {platform.mac_ver()[0]}"


def encode(device: Any, commands: Any, call: Call) -> None:
    """Puts the product into a command buffer of a device of pyobjc's."""
    g = Geometry.of(call.numbers)
    if 0 in (g.batch, g.m, g.n):
        return
    shaders = bindings()
    is_turned = [_is_turned(g.a, g.k), _is_turned(g.b, g.n)]
    make = getattr(shaders.MPSMatrixMultiplication.alloc(), INITIALIZER)
    multiply = make(device, *is_turned, g.m, g.n, g.k, 1.0, 0.0)
    sides = (
        (g.a, g.m, g.k, is_turned[0]), (g.b, g.k, g.n, is_turned[1]), (g.c, g.m, g.n, False)
    )  # fmt: skip
    for number in range(g.batch):
        matrices = (
            _matrix(shaders, place, steps, number, rows, columns, turned)
            for place, (steps, rows, columns, turned) in zip(call.operands, sides, strict=True)
        )
        multiply.encodeToCommandBuffer_leftMatrix_rightMatrix_resultMatrix_(commands, *matrices)


def _is_turned(steps: Steps, columns: int) -> bool:
    """Do neighbours along a matrix's columns lie apart, so that it lies turned?"""
    return steps.column != 1 and columns > 1


def _matrix(
    shaders: Any, place: DevicePointer, steps: Steps, number: int, rows: int, columns: int,
    is_turned: bool,
) -> Any:  # fmt: skip
    """A matrix of a batch as it lies in memory, by rows."""
    if is_turned:
        rows, columns, step = columns, rows, steps.column
    else:
        step = steps.row
    describe = shaders.MPSMatrixDescriptor.matrixDescriptorWithRows_columns_rowBytes_dataType_
    descriptor = describe(rows, columns, max(step, columns) * SIZE, FLOAT32)
    start = place.offset + (steps.start + number * steps.batch) * SIZE
    matrix = shaders.MPSMatrix.alloc()
    return matrix.initWithBuffer_offset_descriptor_(place.block, start, descriptor)

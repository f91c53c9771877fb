"""Runs one pointwise primitive over NumPy arrays: expanded to lanes, compiled."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from luminal.backends.cpu.target import detect
from luminal.base.dtypes import DType
from luminal.codegen import llvm_walk
from luminal.codegen.llvm_operations import instructions
from luminal.expand.builder import Builder
from luminal.expand.casts import bitcast, cast, from_memory, to_memory
from luminal.expand.ir import INDEX, Kernel, Operand, Param, Type, memory_dtype
from luminal.expand.pointwise import POINTWISE
from luminal.expand.verify import verify
from luminal.kernel.tile_ir import Buffer, Role, Space
from luminal.shape.expression import ZERO, symbol

Array = np.ndarray[Any, Any]

# what a capped target may use; the first is chosen only where this machine has it
AVX512 = ("avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl")
AVX2 = ("avx2", "fma", "f16c")
BASELINE = ()
_ABI = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2, ctypes.c_void_p)


@cache
def host_has(features: tuple[str, ...]) -> bool:
    host = llvm.get_host_cpu_features()
    return all(host.get(name, False) for name in features)


@cache
def text(
    op: str, inputs: tuple[DType, ...], out: DType, lanes: int, features: tuple[str, ...]
) -> str:
    """LLVM IR of the kernel, whose chunks are vectors."""
    target = replace(detect(), features=features)
    return llvm_walk.render(_expanded(op, inputs, out, lanes, features), target)


def _parsed(ir_text: str, features: tuple[str, ...]) -> tuple[Any, Any]:
    """The module, and a machine with these features."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(ir_text)
    module.verify()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(
        cpu="x86-64", features=",".join("+" + f for f in features), opt=3, jit=True
    )
    return module, machine


def assembly(
    op: str, inputs: tuple[DType, ...], out: DType, lanes: int, features: tuple[str, ...]
) -> str:
    """The text of what `kernel` runs."""
    module, machine = _parsed(text(op, inputs, out, lanes, features), features)
    return str(machine.emit_assembly(module))


@cache
def kernel(
    op: str, inputs: tuple[DType, ...], out: DType, lanes: int, features: tuple[str, ...]
) -> Callable[..., None]:
    """The native loop of `op`, of an array of pointers and a number of vectors."""
    module, machine = _parsed(text(op, inputs, out, lanes, features), features)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    native = _ABI(engine.get_function_address("kernel"))

    def call(slots: int, count: int) -> None:
        native(slots, slots, 0, count, slots)

    call.engine = engine  # type: ignore[attr-defined]  # keeps the code loaded
    return call


def run(
    op: str,
    dtypes: Sequence[DType],
    out: DType,
    arrays: Sequence[Array],
    lanes: int = 16,
    features: tuple[str, ...] = AVX2,
) -> Array:
    """`op` on equally long arrays; pads them to whole vectors with their last element."""
    length = len(arrays[0])
    padding = -length % lanes
    padded = [np.ascontiguousarray(np.pad(a, (0, padding), mode="edge")) for a in arrays]
    result = np.empty(length + padding, out.numpy)
    call = kernel(op, tuple(dtypes), out, lanes, features)
    slots = np.array([a.ctypes.data for a in (*padded, result)], np.int64)
    call(slots.ctypes.data, (length + padding) // lanes)
    return result[:length]


def _expanded(
    op: str, inputs: tuple[DType, ...], out: DType, lanes: int, features: tuple[str, ...]
) -> Kernel:
    """A chunk is one vector."""
    b, count = Builder(instructions(features)), symbol("n", 0, 2**40)
    param = Param(count, b.value(INDEX))
    names = [f"x{k}" for k in range(len(inputs))]
    size = count * lanes
    buffers = [
        Buffer(name, dtype, size, Space.GLOBAL, Role.IN)
        for name, dtype in zip(names, inputs, strict=True)
    ]
    chunk = b.open(INDEX)
    start = b.op("mul", chunk, lanes)
    args = [
        from_memory(b, dtype, b.load(Type(memory_dtype(dtype), lanes), name, start))
        for name, dtype in zip(names, inputs, strict=True)
    ]
    b.store("y", start, to_memory(b, out, _value(b, op, inputs[-1], args, out)))
    body = b.close()
    target = Buffer("y", out, size, Space.GLOBAL, Role.OUT)
    found = Kernel((param,), (*buffers, target), (), ZERO, count, b.close(), chunk, body)
    verify(found)
    return found


def _value(b: Builder, op: str, dtype: DType, args: list[Operand], out: DType) -> Operand:
    if op in ("Cast", "Bitcast"):
        return (cast if op == "Cast" else bitcast)(b, dtype, args[0], out)
    return POINTWISE[op](b, dtype, args)

"""Runs one emitted op over NumPy arrays: a loop of loads, the op and a store, JIT-compiled."""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from luminal.codegen.llvm_builder import (
    I64,
    PTR,
    VOID,
    FunctionBuilder,
    IRValue,
    ModuleBuilder,
)
from luminal.codegen.llvm_cast import from_memory, memory_type, to_memory
from luminal.codegen.llvm_math import POINTWISE
from luminal.dtypes import DType

Array = np.ndarray[Any, Any]

# what a capped target may use; the first is chosen only where this machine has it
AVX512 = ("avx2", "fma", "f16c", "avx512f", "avx512dq", "avx512bw", "avx512vl")
AVX2 = ("avx2", "fma", "f16c")
BASELINE = ()


@cache
def host_has(features: tuple[str, ...]) -> bool:
    host = llvm.get_host_cpu_features()
    return all(host.get(name, False) for name in features)


@cache
def kernel(
    op: str, inputs: tuple[DType, ...], out: DType, lanes: int, features: tuple[str, ...]
) -> tuple[Callable[..., None], str]:
    """The native loop of `op` (pointers to the operands, to the result, a multiple of lanes)."""
    ir = _loop_text(op, inputs, out, lanes, features)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(ir)
    module.verify()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(
        cpu="x86-64", features=",".join("+" + f for f in features), opt=3, jit=True
    )
    assembly = machine.emit_assembly(module)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(inputs) + 1), ctypes.c_int64)
    native = signature(engine.get_function_address("kernel"))

    def call(*args: int) -> None:
        native(*args)

    call.engine = engine  # type: ignore[attr-defined]  # keeps the code loaded
    return call, assembly


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
    call, _ = kernel(op, tuple(dtypes), out, lanes, features)
    call(*(a.ctypes.data for a in padded), result.ctypes.data, length + padding)
    return result[:length]


def _loop_text(
    op: str, inputs: tuple[DType, ...], out: DType, lanes: int, features: tuple[str, ...]
) -> str:
    params = [(f"x{i}", PTR) for i in range(len(inputs))]
    b = FunctionBuilder(ModuleBuilder(features), "kernel", VOID, [*params, ("y", PTR), ("n", I64)])
    *sources, target, n = b.params
    entry, loop, done = b.current, b.label("loop"), b.label("exit")
    b.block(loop)
    index = b.phi(I64, [(b.const(I64, 0), entry)])
    args = [_load(b, p, index, d, lanes) for p, d in zip(sources, inputs, strict=True)]
    value = to_memory(b, out, POINTWISE[op](b, inputs[-1], args, out))
    b.store(value, b.gep(target, index, memory_type(out)), out.size)
    following = b.binary("add", index, b.const(I64, lanes))
    b.add_incoming(index, following, b.current)
    b.cond_br(b.icmp("ult", following, n), loop, done)
    b.block(done)
    b.ret()
    return b.module_text()


def _load(b: FunctionBuilder, p: IRValue, index: IRValue, dtype: DType, lanes: int) -> IRValue:
    loaded = b.load(memory_type(dtype, lanes), b.gep(p, index, memory_type(dtype)), dtype.size)
    return from_memory(b, dtype, loaded)

"""Calls of kernels with every register that holds no argument full of ones.

What a caller leaves there is nothing that a kernel may use; but a compiler can: LLVM takes the
upper half of some mask registers to be 0, which in a test they mostly are.
"""

from __future__ import annotations

import ctypes
import functools
import platform

import llvmlite.binding as llvm

from luminal.backends.cpu import compiler, machine_code, target
from luminal.backends.cpu.linker import LoadedCode
from luminal.backends.cpu.target import CpuTarget

_CALL = ctypes.CFUNCTYPE(
    None,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    *(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p),
)


def call(kernel: int, slots: int, dims: int, begin: int, end: int, scratch: int) -> None:
    """Runs the kernel at an address."""
    _CALL(_trampoline().address)(kernel, slots, dims, begin, end, scratch)


def _x86(here: CpuTarget) -> dict[str, str]:
    ones = {name: f"movq $$-1, %{name}" for name in "rbx r10 r11 r12 r13 r14 r15".split()}
    if here.vector_bits == 512:
        ones |= {f"k{n}": f"kxnorq %k{n}, %k{n}, %k{n}" for n in range(8)}
        return ones | {f"xmm{n}": f"vpternlogd $$255, %zmm{n}, %zmm{n}, %zmm{n}" for n in range(32)}
    return ones | {f"xmm{n}": f"vpcmpeqd %ymm{n}, %ymm{n}, %ymm{n}" for n in range(16)}


def _arm(here: CpuTarget) -> dict[str, str]:
    ones = {f"x{n}": f"mov x{n}, #-1" for n in (*range(8, 16), *range(19, 29))}
    if "sve" in here.features:
        ones |= {f"p{n}": f"ptrue p{n}.b" for n in range(16)}
        return ones | {f"z{n}": f"mov z{n}.b, #-1" for n in range(32)}
    return ones | {f"v{n}": f"movi v{n}.16b, #255" for n in range(32)}


ONES = {"x86_64": _x86, "aarch64": _arm}
"""Registers that hold no argument, by the kernel's name of the machine, and what fills them."""


@functools.cache
def _trampoline() -> LoadedCode:
    llvm.initialize_native_asmparser()
    here = target.detect()
    ones = ONES[platform.machine()](here)
    text, out = "\\0A".join(ones.values()), ",".join(f"~{{{name}}}" for name in ones)
    ir = f"""
define void @kernel(ptr %callee, ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {{
  call void asm sideeffect "{text}", "{out}"()
  call void %callee(ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch)
  ret void
}}
"""
    return compiler.load(machine_code.compile_object(ir, here))

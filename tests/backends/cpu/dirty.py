"""Calls of kernels with every register that holds no argument full of ones.

What a caller leaves there is nothing that a kernel may use; but a compiler can: LLVM takes the
upper half of some mask registers to be 0, which in a test they mostly are.
"""

from __future__ import annotations

import ctypes
import functools

import llvmlite.binding as llvm

from luminal.backends.cpu import compiler, machine_code, target
from luminal.backends.cpu.linker import LoadedCode

KEPT = ("rbx", "r12", "r13", "r14", "r15")  # whose values a kernel has to give back
FREE = ("r10", "r11")

_CALL = ctypes.CFUNCTYPE(
    None,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    *(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p),
)


def call(kernel: int, slots: int, dims: int, begin: int, end: int, scratch: int) -> None:
    """Runs the kernel at an address."""
    _CALL(_trampoline().address)(kernel, slots, dims, begin, end, scratch)


@functools.cache
def _trampoline() -> LoadedCode:
    llvm.initialize_native_asmparser()
    here = target.detect()
    lines = [f"movq $$-1, %{name}" for name in (*KEPT, *FREE)]
    clobbers = [*KEPT, *FREE]
    if here.vector_bits == 512:
        lines += [f"kxnorq %k{n}, %k{n}, %k{n}" for n in range(8)]
        lines += [f"vpternlogd $$255, %zmm{n}, %zmm{n}, %zmm{n}" for n in range(32)]
        clobbers += [*(f"k{n}" for n in range(1, 8)), *(f"xmm{n}" for n in range(32))]
    else:
        lines += [f"vpcmpeqd %ymm{n}, %ymm{n}, %ymm{n}" for n in range(16)]
        clobbers += [f"xmm{n}" for n in range(16)]
    text, out = "\\0A".join(lines), ",".join(f"~{{{name}}}" for name in clobbers)
    ir = f"""
define void @kernel(ptr %callee, ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch) {{
  call void asm sideeffect "{text}", "{out}"()
  call void %callee(ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch)
  ret void
}}
"""
    return compiler.load(machine_code.compile_object(ir, here))

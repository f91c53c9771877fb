"""Kernels of tile IR to LLVM IR: expanded to vectors, then written by one walk.

`void @kernel(ptr %slots, ptr %dims, i64 %begin, i64 %end, ptr %scratch)` runs the grid chunks
begin..end-1: `slots[i]` points to the i-th buffer, `dims[i]` is the i-th parameter, `scratch` is
this thread's working memory (64-byte aligned). Everything is explicit: vectors, unrolling, fma; no
fast-math and no optimiser is needed.
"""

from __future__ import annotations

from luminal.codegen import llvm_custom, llvm_walk
from luminal.codegen.llvm_operations import WIDTHS, instructions
from luminal.codegen.llvm_target import LlvmTarget
from luminal.expand.expand import expand
from luminal.kernel.tile_ir import Kernel


def render(kernel: Kernel, target: LlvmTarget) -> str:
    """The LLVM IR text of a verified kernel for a target."""
    if kernel.call is not None:
        return llvm_custom.render(kernel.call)
    return llvm_walk.render(expand(kernel, WIDTHS[-1], instructions(target.features)), target)

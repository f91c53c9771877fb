"""HIP: CUDA C++ as AMD's compilers take it, with -ffp-contract=off."""

from __future__ import annotations

from luminal.base.dots import MFMA, WMMA, Dot
from luminal.codegen.c_family import matrices
from luminal.codegen.c_family.cuda import CudaCpp


class Hip(CudaCpp):
    """The dialect of HIP, in which AMD's names are NVIDIA's."""

    name = "HIP"
    depend = ""
    static_bytes = None
    exchanged = "__shfl_xor({value}, {distance})"
    has_copies = False
    instructions = frozenset()
    not_unrolled = "#pragma unroll 1"
    """Else clang writes out all blocks of a product and loads them together: 256 registers where 61
    do, and 149 more in memory (gfx1100).
    """

    def multiply(self, dot: Dot) -> str:
        return matrices.amdgcn(dot) if dot in (*MFMA, *WMMA) else super().multiply(dot)

    def bound(self, lanes: int) -> str:
        """The bound on a group's lanes; AMD's second number would mean something else."""
        return f"__launch_bounds__({lanes})"


HIP = Hip()

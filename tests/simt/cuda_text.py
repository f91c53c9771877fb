"""What of CUDA C++ and HIP no header can say in C++: dynamic shared memory, launch bounds."""

from __future__ import annotations

import re

from tests.simt.signature import Signature

_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+(?:void\s+)?(?:__launch_bounds__\((\d+)[^)]*\)\s*)?(?:void\s+)?'
    r"(\w+)\s*\("
)
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\d+\)\s*)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)


def cuda_kernels(text: str) -> list[Signature]:
    """The kernels, which are all `extern "C"`."""
    return [
        Signature(name, f"SIMT_KERNEL({name})", int(threads or 1024))
        for threads, name in _KERNEL.findall(text)
    ]


def rewritten_cuda(text: str) -> str:
    """The text with dynamic shared memory as a pointer to where the launch has it."""
    return _DYNAMIC.sub(r"\1* \2 = (\1*)simt::dynamic_shared();", text)

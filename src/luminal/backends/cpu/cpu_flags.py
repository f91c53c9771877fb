"""The features that code may use, by names that are looked up without LLVM: on x86-64 the words of
Linux's /proc/cpuinfo, on AArch64 LLVM's names of the kernel's bits (`hwcaps.py`).

Only those are listed that change which instructions LLVM
writes for arithmetic, loads and bits; what an operating system or a cipher uses is no need of ours.
"""

from __future__ import annotations

from luminal.codegen.llvm_target import LlvmTarget

_X86 = {
    name: name
    for name in (
        "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "popcnt", "ssse3", "sse4_1",
        "sse4_2", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vbmi",
        "avx512ifma", "gfni", "vpclmulqdq",
    )
}  # fmt: skip
_X86 |= {
    "bmi": "bmi1",
    "lzcnt": "abm",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "avx512bf16": "avx512_bf16",
    "avx512vnni": "avx512_vnni",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512fp16": "avx512_fp16",
    "avxvnni": "avx_vnni",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}
_ARM = {
    name: name
    for name in ("neon", "lse", "rdm", "fullfp16", "dotprod", "bf16", "i8mm", "sve", "sve2")
}
# What the levels of LLVM's x86-64-v3 and v4 have beside their vectors: their code may use it.
_WITH_AVX2 = ("popcnt", "ssse3", "sse4_1", "sse4_2")


def flags(machine: LlvmTarget) -> list[str]:
    """The words that a machine's own list must have for code of this target, sorted."""
    is_x86 = machine.triple.startswith("x86_64")
    names = _X86 if is_x86 else _ARM
    words = {names[name] for name in machine.features if name in names}
    if is_x86 and "avx2" in words:
        words.update(_WITH_AVX2)
    return sorted(words)

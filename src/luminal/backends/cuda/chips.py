"""NVIDIA's chips by the names that NVRTC has for them.

Sizes by compute capability are those of the CUDA C++ Programming Guide (appendix "Compute
Capabilities", technical specifications), rates those of its table "Throughput of Native Arithmetic
Instructions". Units, caches, clocks and memory are a product's, by NVIDIA's architecture white
papers and data sheets. `matrix` is their rate of dense f16 or bf16 products with f32 sums, by units
and clock; of what H100's tensor cores do by wgmma (`left`) mma.sync reaches 62% (arXiv 2402.13499),
which is taken for B200's as well.
"""

from __future__ import annotations

from dataclasses import replace

from luminal.backends.cuda import presence
from luminal.base.dots import (
    MMA,
    MMA_FLOAT8,
    MMA_SCALED,
    TCGEN05,
    TCGEN05_SCALED,
    UINT8_BY_INT8,
    WGMMA,
)
from luminal.schedule.groups.chip import Chip, Pipes, nearest

K, M = 1 << 10, 1 << 20
DOTS = *MMA, UINT8_BY_INT8
DOTS_89 = *MMA_FLOAT8, *DOTS
DOTS_100 = *(dot for dot in TCGEN05_SCALED if dot.n == 128), *DOTS_89
DOTS_120 = *MMA_SCALED, *DOTS_89
REGISTERS, GROUP, ROW = 64 * K, 1024, 32  # of a unit, of a group, and that step together: always

# fmt: off
CHIPS = (
    # A100 SXM, 80 GB: NVIDIA A100 Tensor Core GPU Architecture.
    Chip("sm_80", 108, REGISTERS, 164 * K, 163 * K, 2048, GROUP, ROW, 40 * M, 2.039e12, 1.41e9,
         Pipes(issue=128, f32=64, f64=32, i32=64, special=16, exchange=32, shared=32,
               matrix=1024, matrix_f64=64), dots=DOTS, copies=16),
    # GeForce RTX 3090: NVIDIA Ampere GA102 GPU Architecture.
    Chip("sm_86", 82, REGISTERS, 100 * K, 99 * K, 1536, GROUP, ROW, 6 * M, 936e9, 1.695e9,
         Pipes(issue=128, f32=128, f64=2, i32=64, special=16, exchange=32, shared=32,
               matrix=256, matrix_f64=2), dots=DOTS, copies=16),
    # GeForce RTX 4090: NVIDIA Ada GPU Architecture.
    Chip("sm_89", 128, REGISTERS, 100 * K, 99 * K, 1536, GROUP, ROW, 72 * M, 1.008e12, 2.52e9,
         Pipes(issue=128, f32=128, f64=2, i32=64, special=16, exchange=32, shared=32,
               matrix=256, matrix_f64=2), dots=DOTS_89, copies=16),
    # H100 SXM: NVIDIA H100 Tensor Core GPU Architecture. Under load it runs below its 1.98 GHz.
    Chip("sm_90a", 132, REGISTERS, 228 * K, 227 * K, 2048, GROUP, ROW, 50 * M, 3.35e12, 1.755e9,
         Pipes(issue=128, f32=128, f64=64, i32=64, special=16, exchange=32, shared=32,
               matrix=1270, left=2048, matrix_f64=128), dots=DOTS_89, copies=16, is_chained=True,
         left=WGMMA),
    # B200: NVIDIA Blackwell Architecture Technical Brief, and the data sheet of HGX B200: 2.25e15
    # dense operations of bf16 a second, 4096 products a unit and cycle.
    Chip("sm_100a", 148, REGISTERS, 228 * K, 227 * K, 2048, GROUP, ROW, 126 * M, 8e12, 1.85e9,
         Pipes(issue=128, f32=128, f64=64, i32=64, special=16, exchange=32, shared=32,
               matrix=1270, left=4096, matrix_f64=64), dots=DOTS_100, copies=16, is_chained=True,
         left=(*TCGEN05, *TCGEN05_SCALED)),
    # GeForce RTX 5090: NVIDIA RTX Blackwell GPU Architecture; all its pipes compute integers.
    Chip("sm_120a", 170, REGISTERS, 100 * K, 99 * K, 1536, GROUP, ROW, 96 * M, 1.792e12, 2.407e9,
         Pipes(issue=128, f32=128, f64=2, i32=128, special=16, exchange=32, shared=32,
               matrix=256, matrix_f64=2), dots=DOTS_120, copies=16, is_chained=True),
)
# fmt: on
CHAINED = 90  # capability from which kernels wait for earlier launches by themselves
OLDEST = 80  # of those with these instructions for matrices


def architecture(capability: int) -> str:
    """The name that NVRTC knows a chip by, from 9.0 on with all that this chip alone can do."""
    return f"sm_{capability}{'a' if capability >= 90 else ''}"


def capability(name: str) -> int:
    """The compute capability of an architecture, times ten."""
    return int(name.removeprefix("sm_").rstrip("a"))


def present(number: int) -> Chip:
    """The chip of the device of a number, as the driver tells it."""
    facts = presence.attributes(number)
    name = architecture(10 * facts["major"] + facts["minor"])
    chip = nearest(name, CHIPS, capability)
    if capability(name) < OLDEST:
        chip = replace(chip, dots=(), copies=0)
    return chip.told(
        {
            "units": facts["units"],
            "registers": facts["unit_registers"],
            "unit_bytes": facts["unit_bytes"],
            "group_bytes": facts["group_bytes"],
            "resident": facts["unit_lanes"],
            "most_lanes": facts["group_lanes"],
            "subgroup": facts["subgroup"],
            "cache_bytes": facts["cache_bytes"],
            "hertz": 1e3 * facts["clock"],
            # Twice a cycle, a bit for each wire.
            "memory": 2e3 * facts["memory_clock"] * facts["memory_bits"] / 8,
        }
    )

"""AMD's chips by the names that clang has for them.

Units, registers, shared memory (LDS) and caches are those of ROCm's page "AMD GPU specifications";
lanes by unit those of HIP's "Hardware implementation"; rates, clocks and memory of AMD's data
sheets and white papers of CDNA 2, CDNA 3, RDNA 3 and RDNA 4. The last cache that all units share is
the Infinity Cache where there is one.
"""

from __future__ import annotations

from typing import Any

from luminal.base.dots import MFMA, MFMA_3, UINT8_BY_INT8, WMMA, WMMA_4
from luminal.schedule.groups.chip import Chip, Pipes, nearest

K, M, GROUP, LDS = 1 << 10, 1 << 20, 1024, 64 << 10
WIDE, NARROW = 64, 32  # lanes that step together

# fmt: off
CHIPS = (
    # One of the two dies of an Instinct MI250X, which are devices each.
    Chip("gfx90a", 110, 128 * K, LDS, LDS, 2048, GROUP, WIDE, 8 * M, 1.638e12, 1.7e9,
         Pipes(issue=64, f32=64, f64=64, i32=64, special=16, exchange=32, shared=32, matrix=512,
               matrix_f32=128, matrix_f64=128), dots=(*MFMA, UINT8_BY_INT8)),
    # Instinct MI300X.
    Chip("gfx942", 304, 128 * K, LDS, LDS, 2048, GROUP, WIDE, 256 * M, 5.3e12, 2.1e9,
         Pipes(issue=64, f32=64, f64=64, i32=64, special=16, exchange=32, shared=32, matrix=1024,
               matrix_f32=128, matrix_f64=128), dots=(*MFMA_3, UINT8_BY_INT8), copies=4),
    # Radeon RX 7900 XTX. Pairs of f32 operations in one instruction are not counted on.
    Chip("gfx1100", 96, 96 * K, LDS, LDS, 1024, GROUP, NARROW, 96 * M, 960e9, 2.5e9,
         Pipes(issue=64, f32=64, f64=2, i32=64, special=16, exchange=32, shared=32, matrix=256),
         dots=(*WMMA, UINT8_BY_INT8)),
    # Radeon RX 9070 XT.
    Chip("gfx1201", 64, 96 * K, LDS, LDS, 1024, GROUP, NARROW, 64 * M, 640e9, 2.97e9,
         Pipes(issue=64, f32=64, f64=2, i32=64, special=16, exchange=32, shared=32, matrix=512),
         dots=(*WMMA_4, UINT8_BY_INT8)),
)
# fmt: on


def version(name: str) -> tuple[int, int, int]:
    """The numbers in a name: two hexadecimal digits end it."""
    digits = name.removeprefix("gfx")
    return int(digits[:-2]), int(digits[-2], 16), int(digits[-1], 16)


def like(name: str) -> Chip:
    """The chip of a name, from the rows of its family: those of graphics cards count from 10 on."""
    is_card = version(name)[0] >= 10
    return nearest(name, [row for row in CHIPS if (version(row.name)[0] >= 10) == is_card], version)


def present(properties: Any) -> Chip:
    """The chip that ROCm's properties of a device tell of."""
    return like(properties.gcnArchName.partition(":")[0]).told(
        {
            "units": properties.multiProcessorCount,
            "group_bytes": properties.sharedMemPerBlock,
            "resident": properties.maxThreadsPerMultiProcessor,
            "most_lanes": properties.maxThreadsPerBlock,
            "subgroup": properties.warpSize,
            "hertz": 1e3 * properties.clockRate,
            # Twice a cycle, a bit for each wire.
            "memory": 2e3 * properties.memoryClockRate * properties.memoryBusWidth / 8,
        }
    )

"""Apple's GPUs by the families of Metal, each as the largest chip of its first year has it.

Sizes of groups are those of Apple's "Metal Feature Set Tables"; units and memory of Apple's
technical specifications of the MacBook Pro. Registers, rates and clocks are not published by Apple:
they are those that github.com/philipturner/metal-benchmarks measured.
"""

from __future__ import annotations

from typing import Any

from luminal.base.dots import SIMDGROUP, SIMDGROUP_F16, SIMDGROUP_F32
from luminal.schedule.groups.chip import Chip, Pipes, nearest

K, M, GROUP, ROW = 1 << 10, 1 << 20, 1024, 32
REGISTERS, UNIT, MOST, RESIDENT = 52 * K, 60 << 10, 32 << 10, 3072
DOTS = (SIMDGROUP_F16, SIMDGROUP_F32)
FIRST = 1000  # MTLGPUFamilyApple1 is 1001
PIPES = Pipes(
    issue=128, f32=128, f64=0, i32=128, special=32, exchange=64, shared=32, matrix=128
)  # fmt: skip

# fmt: off
CHIPS = (
    # M1 Max
    Chip("apple7", 32, REGISTERS, UNIT, MOST, RESIDENT, GROUP, ROW, 48 * M, 400e9, 1.296e9, PIPES,
         dots=DOTS),
    # M2 Max
    Chip("apple8", 38, REGISTERS, UNIT, MOST, RESIDENT, GROUP, ROW, 48 * M, 400e9, 1.398e9, PIPES,
         dots=SIMDGROUP),
    # M3 Max
    Chip("apple9", 40, REGISTERS, UNIT, MOST, RESIDENT, GROUP, ROW, 48 * M, 400e9, 1.38e9, PIPES,
         dots=SIMDGROUP),
)
# fmt: on


def family(name: str) -> int:
    """The number of a family."""
    return int(name.removeprefix("apple"))


def present(device: Any) -> Chip:
    """The chip of one of pyobjc's devices, which says its family and how large groups may be."""
    newest = family(CHIPS[-1].name) + 9  # those of years to come
    number = next((n for n in range(newest, 0, -1) if device.supportsFamily_(FIRST + n)), 1)
    return nearest(f"apple{number}", CHIPS, family).told(
        {"group_bytes": device.maxThreadgroupMemoryLength()}
    )

"""What Linux says that an AArch64 processor can do: two words of bits, one for each feature.

Source: the kernel's "ARM64 ELF hwcaps"; names of features are LLVM's.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

MACHINE = "aarch64"
AT_HWCAP, AT_HWCAP2 = 16, 26
FIRST = {
    "fp-armv8": 0,
    "neon": 1,
    "aes": 3,
    "sha2": 6,
    "crc": 7,
    "lse": 8,
    "fullfp16": 10,
    "rdm": 12,
    "jsconv": 13,
    "complxnum": 14,
    "rcpc": 15,
    "dotprod": 20,
    "sve": 22,
    "fp16fml": 23,
}
SECOND = {"sve2": 1, "i8mm": 13, "bf16": 14}
_SVE_GET_VL, _BYTES = 51, 0xFFFF  # of prctl, and the share of its answer that counts bytes


@cache
def words() -> tuple[int, int, int]:
    """The two words of features, and the bytes of a register of SVE; all 0 on other machines."""
    if platform.machine() != MACHINE:
        return 0, 0, 0
    libc = ctypes.CDLL(None)
    libc.getauxval.restype, libc.getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    first, second = libc.getauxval(AT_HWCAP), libc.getauxval(AT_HWCAP2)
    has_sve = first >> FIRST["sve"] & 1
    return first, second, libc.prctl(_SVE_GET_VL, 0, 0, 0, 0) & _BYTES if has_sve else 0


def features(first: int, second: int, sve_bytes: int) -> dict[str, bool]:
    """Features by LLVM's names, True where the words have them. SVE is there where its registers
    have the 256 bits that code is made for.
    """
    bits = {name: bool(first >> bit & 1) for name, bit in FIRST.items()}
    bits |= {name: bool(second >> bit & 1) for name, bit in SECOND.items()}
    wide = sve_bytes * 8 == SVE_BITS
    return bits | {name: bits[name] and wide for name in ("sve", "sve2")}


SVE_BITS = 256

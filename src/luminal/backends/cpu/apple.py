"""What macOS says that Apple silicon can do, where LLVM asks for nothing.

Source: Apple's "Determining instruction set characteristics"; names of features are LLVM's.
"""

from __future__ import annotations

from luminal.base.host.sysctl import sysctl

TRIPLE = "arm64-apple"
_FEAT = "hw.optional.arm.FEAT_"
FEATURES = {
    "fp-armv8": "hw.optional.neon",
    "neon": "hw.optional.neon",
    "crc": "hw.optional.armv8_crc32",
    "aes": _FEAT + "AES",
    "sha2": _FEAT + "SHA256",
    "lse": _FEAT + "LSE",
    "rdm": _FEAT + "RDM",
    "fullfp16": _FEAT + "FP16",
    "fp16fml": _FEAT + "FHM",
    "dotprod": _FEAT + "DotProd",
    "jsconv": _FEAT + "JSCVT",
    "complxnum": _FEAT + "FCMA",
    "rcpc": _FEAT + "LRCPC",
    "bf16": _FEAT + "BF16",
    "i8mm": _FEAT + "I8MM",
}


def features() -> dict[str, bool]:
    """Features by LLVM's names, True where the kernel knows them as there."""
    return {name: bool(sysctl(key)) for name, key in FEATURES.items()}

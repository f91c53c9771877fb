"""Facts of the CPU this process runs on, and how to pretend that it has less."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from luminal.backends.cpu import libraries
from luminal.backends.cpu.host import host as host_facts
from luminal.base import config
from luminal.base.dots import BF16_PAIRS, INT8_FOURS, UINT8_BY_INT8, Dot
from luminal.base.errors import CompileError
from luminal.base.records import dataclass
from luminal.schedule.vectors.vector_target import VectorTarget

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
DOTS = (
    (BF16_PAIRS, "avx512bf16"),
    (INT8_FOURS, "avx2"),
    (UINT8_BY_INT8, "avx2"),
)
# Stand-ins where sysfs says nothing (some containers): small, so that tiles still fit.
DEFAULT_CACHE_BYTES = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTarget(VectorTarget):
    """A CPU, with what LLVM needs to know of it (`LlvmTarget`)."""

    triple: str
    cpu: str
    features: tuple[str, ...]
    llvm_features: str
    fma: bool


@dataclass(frozen=True, slots=True)
class Level:
    """One of x86-64's published feature levels: LLVM's CPU name and what it needs of the host."""

    cpu: str
    features: tuple[str, ...]
    vector_bits: int
    registers: int


_AVX2 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_AVX512 = ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
LEVELS = {
    "avx512": Level("x86-64-v4", _AVX2 + _AVX512, 512, 32),
    "avx2": Level("x86-64-v3", _AVX2, 256, 16),
    "baseline": Level("x86-64", (), 128, 16),
}


def current() -> CpuTarget:
    """The target to compile for: this machine, capped by LUMINAL_TARGET."""
    return cap(detect(), config.get("LUMINAL_TARGET"))


@functools.cache
def detect() -> CpuTarget:
    """The facts of this machine, all it has.

    Raises CompileError where this is not Linux on x86-64.
    """
    # The level whose features the machine has decides vector width and registers: equal levels so
    # make equal programs, whatever else the processor can do.
    host = host_facts()
    if not re.match("x86_64-.*linux", host.triple):
        raise CompileError(
            f"cpu backend: {host.triple}: only x86-64 Linux is supported; use backend='reference'"
        )
    features = tuple(sorted(name for name, present in host.features.items() if present))
    # From the highest on; the last asks for nothing, so there always is one.
    level = next(row for row in LEVELS.values() if set(row.features) <= set(features))
    return CpuTarget(
        name="native",
        triple=host.triple,
        cpu=host.cpu,
        features=features,
        llvm_features=",".join(
            ("+" if present else "-") + name for name, present in sorted(host.features.items())
        ),
        vector_bits=level.vector_bits,
        registers=level.registers,
        fma="fma" in features,
        dots=_dots(features),
        cores=len(os.sched_getaffinity(0)),
        l1_bytes=_cache_bytes(1),
        l2_bytes=_cache_bytes(2),
        l3_bytes=_cache_bytes(3),
        libraries=libraries.installed(),
    )


@functools.cache
def cap(target: CpuTarget, name: str) -> CpuTarget:
    """The target reduced to a feature level: "avx512", "avx2", "baseline"; "native" keeps it.

    A capped target is the same on every machine but for its cores and caches, so code for older
    CPUs can be tested on newer ones. Raises CompileError where the target lacks the level.
    """
    if name == "native":
        return target
    if name not in LEVELS:
        raise CompileError(f"target {name!r}: takes native, {', '.join(LEVELS)}")
    level = LEVELS[name]
    missing = sorted(set(level.features) - set(target.features))
    if missing:
        raise CompileError(
            f"target {name!r}: this CPU ({target.cpu}) lacks {', '.join(missing)}; "
            "choose a lower level or native"
        )
    return replace(
        target,
        name=name,
        cpu=level.cpu,
        features=level.features,
        llvm_features="",
        vector_bits=level.vector_bits,
        registers=level.registers,
        fma="fma" in level.features,
        dots=_dots(level.features),
        # Those of this machine are not those of the next one, and capped targets are to be alike.
        libraries=(),
    )


def _dots(features: Sequence[str]) -> tuple[Dot, ...]:
    return tuple(dot for dot, feature in DOTS if feature in features)


def _cache_bytes(level: int) -> int:
    for index in sorted(CACHES.glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            if int((index / "level").read_text()) == level and kind != "Instruction":
                return _byte_count((index / "size").read_text().strip())
        except (OSError, ValueError):
            continue
    return DEFAULT_CACHE_BYTES[level]


def _byte_count(text: str) -> int:
    """Bytes of a sysfs size such as "32K"."""
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit
